"""Credentials for cloud stores: from the environment, the files of the cloud's own tools, or a file for Triton.

Source: the reference's model repository guide. ``TRITON_CLOUD_CREDENTIAL_PATH`` names a JSON file with an object for
each of ``s3``, ``gs`` and ``as``; its keys are beginnings of addresses, and the longest that fits counts. Addresses
that none fits use the environment. No message shows a secret.
"""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from naiad.errors import OptionError

VARIABLE: Final = "TRITON_CLOUD_CREDENTIAL_PATH"
_S3_FIELDS: Final = ("secret_key", "key_id", "region", "session_token", "profile")
_AS_FIELDS: Final = ("account_str", "account_key", "auth_type", "client_id")


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """The credentials of requests; without ``key_id`` the machine's own role, or nothing with ``is_anonymous``."""

    key_id: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    origin: str = ""
    is_anonymous: bool = False


@dataclass(frozen=True, slots=True)
class AzureCredentials:
    """An account and its key, or another way to sign in (``auth_type``: managed_identity or default)."""

    account: str = ""
    account_key: str = field(default="", repr=False)
    auth_type: str = ""
    client_id: str = ""
    origin: str = ""


def s3_credentials(uri: str, environ: Mapping[str, str]) -> S3Credentials:
    """The credentials for an address of S3: the file's, then AWS_ACCESS_KEY_ID and its like, then those of ``~/.aws``.

    Raises:
        OptionError: they are incomplete, or a file cannot be read.
    """
    entry = _entry("s3", uri, environ)
    if entry is not None:
        values = _texts(entry, "s3", _S3_FIELDS)
        if profile := values.get("profile"):
            return _from_profile(profile, environ, values.get("region", ""), required=True)
        return _complete_s3(
            S3Credentials(
                values.get("key_id", ""),
                values.get("secret_key", ""),
                values.get("session_token", ""),
                values.get("region", ""),
                VARIABLE,
            )
        )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    if environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true"):
        return S3Credentials(region=region, origin="AWS_SKIP_SIGNATURE", is_anonymous=True)
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
    if key_id or secret:
        token = environ.get("AWS_SESSION_TOKEN", "")
        return _complete_s3(S3Credentials(key_id, secret, token, region, "AWS_ACCESS_KEY_ID"))
    profile = environ.get("AWS_PROFILE", "")
    return _from_profile(profile or "default", environ, region, required=bool(profile))


def azure_credentials(uri: str, environ: Mapping[str, str]) -> AzureCredentials:
    """The credentials for an address of Azure: the file's, then AZURE_STORAGE_ACCOUNT and its like.

    Raises:
        OptionError: they are incomplete, or a file cannot be read.
    """
    entry = _entry("as", uri, environ)
    if entry is not None:
        values = _texts(entry, "as", _AS_FIELDS)
        found = AzureCredentials(
            values.get("account_str", ""),
            values.get("account_key", ""),
            values.get("auth_type", ""),
            values.get("client_id", ""),
            VARIABLE,
        )
    else:
        found = AzureCredentials(
            environ.get("AZURE_STORAGE_ACCOUNT", ""),
            environ.get("AZURE_STORAGE_KEY", ""),
            environ.get("AZURE_STORAGE_AUTH_TYPE", ""),
            environ.get("AZURE_STORAGE_CLIENT_ID", ""),
            "AZURE_STORAGE_KEY" if environ.get("AZURE_STORAGE_KEY") else "",
        )
    if found.auth_type not in ("", "managed_identity", "default"):
        raise OptionError(
            f"the way to sign in to Azure is '{found.auth_type}' ({found.origin or 'AZURE_STORAGE_AUTH_TYPE'}), "
            "expected managed_identity or default"
        )
    return found


def google_credentials(uri: str, environ: Mapping[str, str]) -> str:
    """The path of the file with Google's credentials for an address; "" when there is none.

    Raises:
        OptionError: the file does not exist, or the one that names it cannot be read.
    """
    entry = _entry("gs", uri, environ)
    origin = VARIABLE if entry is not None else "GOOGLE_APPLICATION_CREDENTIALS"
    if entry is not None and not isinstance(entry, str):
        raise OptionError(f"{VARIABLE}: an entry of 'gs' is no text, expected the path of a file")
    path = entry if entry is not None else environ.get(origin, "")
    if path and not Path(path).is_file():
        raise OptionError(f"{origin} names '{path}' as the file with Google's credentials, which does not exist")
    return path


def _entry(kind: str, uri: str, environ: Mapping[str, str]) -> Any:
    """The entry of the credential file for ``uri``; None when it has none."""
    path = environ.get(VARIABLE, "")
    if not path:
        return None
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise OptionError(f"{VARIABLE} names '{path}', which cannot be read: {error.strerror}") from None
    except ValueError as error:
        # Not the error itself: no message shows the content of the file.
        place = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "its encoding"
        raise OptionError(f"{VARIABLE} names '{path}', which is no JSON ({place})") from None
    entries = content.get(kind, {}) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise OptionError(
            f"{VARIABLE} names '{path}', which has no object of addresses for '{kind}', expected "
            f'{{"{kind}": {{"": ...}}}}'
        )
    fitting = [prefix for prefix in entries if uri.startswith(prefix)]
    return entries[max(fitting, key=len)] if fitting else None


def _texts(entry: Any, kind: str, known: tuple[str, ...]) -> Mapping[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise OptionError(f"{VARIABLE}: an entry of '{kind}' is no object of texts, expected {', '.join(known)}")
    if unknown := sorted(entry.keys() - set(known)):
        raise OptionError(
            f"{VARIABLE}: an entry of '{kind}' has the key '{unknown[0]}', expected some of {', '.join(known)}"
        )
    return entry


def _complete_s3(found: S3Credentials) -> S3Credentials:
    if bool(found.key_id) != bool(found.secret_key):
        missing = "secret key" if found.key_id else "key id"
        raise OptionError(
            f"the credentials for S3 ({found.origin}) have no {missing}: set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or key_id and secret_key in the file that {VARIABLE} names"
        )
    return found


def _from_profile(profile: str, environ: Mapping[str, str], region: str, required: bool) -> S3Credentials:
    """The keys of a profile of ``~/.aws``; empty ones when there are none and ``required`` is not set."""
    home = Path(environ.get("HOME", "~")).expanduser()
    keys = _section(Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials"), profile)
    # The AWS tools call the sections "profile <name>" in ``config``, but not in ``credentials``.
    prefixed = profile if profile == "default" else f"profile {profile}"
    config = _section(Path(environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config"), prefixed)
    values = {**config, **keys}
    found = S3Credentials(
        values.get("aws_access_key_id", ""),
        values.get("aws_secret_access_key", ""),
        values.get("aws_session_token", ""),
        region or values.get("region", ""),
        f"the profile '{profile}'",
    )
    if required and not found.key_id:
        what = "has no keys, but signs in in another way" if values else "is in neither of the files below ~/.aws"
        raise OptionError(
            f"the AWS profile '{profile}' {what}, expected aws_access_key_id and aws_secret_access_key: set "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (see aws configure export-credentials)"
        )
    return _complete_s3(found) if found.key_id or found.secret_key else S3Credentials(region=found.region)


def _section(path: Path, name: str) -> Mapping[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        # Not the error itself: the parser's text quotes the line.
        raise OptionError(f"'{path}' cannot be read as a file of AWS profiles") from None
    return dict(parser[name]) if parser.has_section(name) else {}
