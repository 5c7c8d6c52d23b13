"""Buckets and containers of S3, Google Cloud Storage and Azure, over the package obstore (the extra ``cloud``)."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import OptionError, StoreError, StoreUnreachableError
from naiad.extras import how_to_install
from naiad.options.remote_uri import RemoteUri, redacted
from naiad.repository.remote.stores.credentials import azure_credentials, google_credentials, s3_credentials
from naiad.repository.remote.stores.google_metadata import has_service_account
from naiad.repository.remote.stores.store import MAX_ENTRIES, Level, ObjectChangedError, StoredFile, checked_path

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

_CONNECT_S: Final = 5
_SILENCE_S: Final = 30
_REQUEST_S: Final = 600
_PAGE: Final = 1000
_S3_HOST: Final = re.compile(r"(?P<scheme>https?://)?(?P<host>[^/:]+|\[[^]]+\]):(?P<port>[0-9]+)/(?P<rest>.*)")
# The library has one class for most failures: its text alone tells a store that is gone from one that refuses.
_UNREACHABLE: Final = re.compile(
    r"error sending request|connection (closed|reset|refused)|timed? ?out|dns error|error decoding response body"
    r"|HTTP error: request or response body error|status code: (50[0234]|408|429)|end of file before message",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"status code: (401|403)|InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied")
_GONE: Final = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist|status code: 404")
_AZURE_OTHER: Final = ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID")
_REGION: Final = re.compile(r"status code: 30\d|PermanentRedirect|AuthorizationHeaderMalformed")


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """The target of an address: ``bucket`` (or container) at ``endpoint``, "" for the cloud's own, and its path."""

    bucket: str
    prefix: str
    endpoint: str = ""
    account: str = ""


def place_of(uri: RemoteUri) -> BucketLocation:
    """The parts of ``s3://[[http[s]://]host:port/]bucket/path``, ``gs://bucket/path``, ``as://account/container/path``.

    Raises:
        OptionError: a part is missing.
    """
    rest = uri.text.partition("://")[2]
    endpoint = account = ""
    if uri.scheme == "s3" and (found := _S3_HOST.fullmatch(rest)):
        endpoint = f"{found['scheme'] or 'http://'}{found['host']}:{found['port']}"
        rest = found["rest"]
    if uri.scheme == "as":
        account, _, rest = rest.partition("/")
    bucket, _, prefix = rest.partition("/")
    if not bucket or (uri.scheme == "as" and not account) or ":" in bucket:
        forms = {
            "s3": "s3://bucket/path or s3://host:port/bucket/path",
            "gs": "gs://bucket/path",
            "as": "as://account/container/path",
        }
        raise OptionError(f"the model repository '{uri}' names no bucket, expected {forms[uri.scheme]}")
    parts = [part for part in prefix.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise OptionError(f"the model repository '{uri}' has '.' or '..' in its path, expected a path without them")
    return BucketLocation(bucket, "/".join(parts), endpoint, account)


class CloudStore:
    """One bucket, from ``place.prefix`` on down.

    Args:
        uri: the address, for messages.
        place: the target of the address.
        raw: obstore's store for the bucket.
        hint: the advice for a message when the store refuses.
    """

    has_ranges = True

    def __init__(self, uri: RemoteUri, place: BucketLocation, raw: S3Store | GCSStore | AzureStore, hint: str) -> None:
        self.identity = f"{uri.scheme}://{place.endpoint}/{place.account}/{place.bucket}/{place.prefix}"
        self._uri = uri
        self._prefix = place.prefix
        self._raw = raw
        self._hint = hint

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        below = "/".join(filter(None, (self._prefix, folder)))
        found: list[StoredFile] = []
        with self._explained(f"list '{below}'"):
            for page in self._raw.list(below or None, chunk_size=_PAGE):
                # The folder itself may have an empty object that stands for it.
                found += [self._entry(meta) for meta in page if meta["path"] != self._prefix]
                # After each page: the listing of a wrong bucket may have no end in sight.
                if len(found) > MAX_ENTRIES:
                    raise StoreError(f"'{self._uri}' holds more than {MAX_ENTRIES} files: name a folder of it")
        return found

    def level(self) -> Level:
        with self._explained(f"list '{self._prefix}'"):
            found = self._raw.list_with_delimiter(self._prefix or None)
        folders = [path.rpartition("/")[2] for path in found["common_prefixes"]]
        return Level(folders, [meta["path"].rpartition("/")[2] for meta in found["objects"]])

    def exists(self, entry: StoredFile) -> bool:
        try:
            with self._explained(f"look for '{entry.path}'"):
                self._raw.head(self._full(entry))
        except ObjectChangedError:
            # ``_explained`` raises it for a missing file.
            return False
        return True

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[memoryview]:
        if start == end:
            return
        with self._explained(f"read '{entry.path}'"):
            # The ETag is compared here, since not every store knows the condition.
            response = self._raw.get(self._full(entry), options={"range": (start, end)})
            if entry.version not in _versions(response.meta) or response.meta["size"] != entry.size:
                raise ObjectChangedError(f"'{entry.path}' of '{self._uri}' has changed while it was fetched")
            content = response.bytes()
        # Outside: an exception of the caller must not be explained as one of the store.
        yield memoryview(content)

    def _full(self, entry: StoredFile) -> str:
        return f"{self._prefix}/{entry.path}" if self._prefix else entry.path

    def _entry(self, meta: Mapping[str, Any]) -> StoredFile:
        path = meta["path"][len(self._prefix) + 1 :] if self._prefix else meta["path"]
        # Not every store has ETags for all of its files.
        tag, modified = _versions(meta)
        return StoredFile(checked_path(path, f"'{self._uri}'"), meta["size"], tag or modified)

    @contextmanager
    def _explained(self, operation: str) -> Iterator[None]:
        """Turn an exception of the library into an error that says what to do."""
        from obstore import exceptions

        try:
            yield
        except (FileNotFoundError, exceptions.NotFoundError, exceptions.PreconditionError) as error:
            raise ObjectChangedError(f"cannot {operation} of '{self._uri}': it is not there any more") from error
        except exceptions.BaseError as error:
            raise self._explanation(operation, str(error)) from None
        except ValueError as error:
            # The library refuses the path, or text that is no Unicode.
            raise StoreError(f"cannot {operation} of '{self._uri}': {_summary(str(error))}") from None

    def _explanation(self, operation: str, text: str) -> StoreError:
        response = _summary(text)
        what = f"cannot {operation} of '{self._uri}': {response}"
        if _UNREACHABLE.search(response):
            return StoreUnreachableError(f"{what}; the store does not answer as it should: is the address right?")
        if _GONE.search(response):
            return StoreError(f"{what}; there is no such bucket or container")
        if _REGION.search(response):
            return StoreError(f"{what}; the bucket may be in another region: set AWS_REGION")
        if _DENIED.search(response) or "credential" in response.lower():
            return StoreError(f"{what}; the store refuses the credentials: {self._hint}")
        return StoreError(what)


def open_cloud(uri: RemoteUri, place: BucketLocation, environ: Mapping[str, str] | None = None) -> CloudStore:
    """The store behind an address of S3, Google or Azure, from ``place`` on down; it is not read yet.

    Raises:
        OptionError: the address or the credentials are wrong, or obstore is not installed.
    """
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"the model repository '{uri}' needs the package obstore ({error}); run: {how_to_install('cloud')}"
        ) from None
    environ = os.environ if environ is None else environ
    make: Any = {"s3": _s3, "gs": _google, "as": _azure}[uri.scheme]
    try:
        raw, hint = make(uri, place, environ)
    except (ValueError, TypeError) as error:
        raise OptionError(f"the model repository '{uri}' cannot be used: {_summary(str(error))}") from None
    except Exception as error:
        if isinstance(error, OptionError) or not type(error).__module__.startswith("obstore"):
            raise
        raise OptionError(f"the model repository '{uri}' cannot be used: {_summary(str(error))}") from None
    return CloudStore(uri, place, raw, hint)


def _s3(uri: RemoteUri, place: BucketLocation, environ: Mapping[str, str]) -> tuple[S3Store, str]:
    from obstore.store import S3Store

    found = s3_credentials(uri.text, environ)
    endpoint = place.endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    config: dict[str, Any] = {"region": found.region or "us-east-1"}
    if endpoint:
        # Stores at an endpoint of their own rarely have a host name for each bucket.
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    if found.is_anonymous:
        config["skip_signature"] = True
    keys = {"access_key_id": found.key_id, "secret_access_key": found.secret_key, "expires_at": None}
    if found.session_token:
        keys["token"] = found.session_token
    raw = S3Store(
        place.bucket,
        config=config,
        client_options=_client(endpoint),
        retry_config=_retry(),
        # The credentials of a provider are not mixed with the environment, as single settings would be.
        credential_provider=(lambda: keys) if found.key_id else None,
    )
    if found.key_id:
        return raw, f"those of {found.origin} are not right for it"
    return raw, (
        "there are none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws or TRITON_CLOUD_CREDENTIAL_PATH; for a "
        "bucket that is open to all set AWS_SKIP_SIGNATURE=true"
    )


def _google(uri: RemoteUri, place: BucketLocation, environ: Mapping[str, str]) -> tuple[GCSStore, str]:
    from obstore.store import GCSStore

    path = google_credentials(uri.text, environ)
    endpoint = environ.get("STORAGE_EMULATOR_HOST", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    config: dict[str, Any] = {}
    hint = f"those of '{path}' are not right for it"
    if endpoint:
        config |= {"base_url": endpoint, "skip_signature": True}
        hint = "STORAGE_EMULATOR_HOST is set, so none are sent"
    elif path:
        config["application_credentials"] = path
    elif not has_service_account(environ):
        config["skip_signature"] = True
        hint = "there are none: set GOOGLE_APPLICATION_CREDENTIALS to the path of a file with them"
    else:
        hint = "this machine's service account may not read it"
    raw = GCSStore(
        place.bucket,
        config=config,
        client_options=_client(endpoint),
        retry_config=_retry(),
    )
    return raw, hint


def _azure(uri: RemoteUri, place: BucketLocation, environ: Mapping[str, str]) -> tuple[AzureStore, str]:
    from obstore.store import AzureStore

    found = azure_credentials(uri.text, environ)
    endpoint = environ.get("AZURE_STORAGE_ENDPOINT", "")
    config: dict[str, Any] = {"account_name": found.account or place.account}
    if found.account_key:
        config["account_key"] = found.account_key
    elif found.client_id:
        config["client_id"] = found.client_id
    if endpoint:
        config["endpoint"] = endpoint.rstrip("/")
    has_other = any(
        environ.get(name) for name in ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID")
    )
    if not found.account_key and not found.auth_type and not has_other:
        config["skip_signature"] = True
    raw = AzureStore(
        place.bucket,
        config=config,
        client_options=_client(endpoint),
        retry_config=_retry(),
    )
    if found.account_key:
        return raw, f"those of {found.origin} are not right for it"
    return raw, "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE"


def _client(endpoint: str) -> Any:
    is_plain = urllib.parse.urlsplit(endpoint).scheme == "http"
    return {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=_SILENCE_S),
        "timeout": timedelta(seconds=_REQUEST_S),
        "allow_http": is_plain,
    }


def _retry() -> Any:
    return {
        "max_retries": 3,
        "retry_timeout": timedelta(seconds=30),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2.0},
    }


def _versions(meta: Mapping[str, Any]) -> tuple[str, str]:
    """The ETag, which not every response has in quotes, and the time of modification in seconds."""
    return (meta["e_tag"] or "").strip('"'), meta["last_modified"].isoformat(timespec="seconds")


def _summary(text: str) -> str:
    """The first lines of the library's error, without its dump of internal structures."""
    head = redacted(text.partition("\n\nDebug source")[0])
    return " ".join(head.split())[:600]
