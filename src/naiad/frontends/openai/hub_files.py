"""The files of a tokenizer that is named by its id on Hugging Face, from the cache of this machine or from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from naiad.errors import OptionError
from naiad.extras import how_to_install


def hub_finder(tokenizer: str) -> Callable[[str], Path | None]:
    """What finds a file of the repository ``tokenizer``; None for one that it does not have.

    Raises:
        OptionError: the library is missing.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise OptionError(
            f"--tokenizer: '{tokenizer}' is no folder here, and names of Hugging Face need huggingface_hub ({error}); "
            f"run: {how_to_install('openai')}"
        ) from None
    found_any = False

    def find(name: str) -> Path | None:
        nonlocal found_any
        try:
            path = Path(hf_hub_download(tokenizer, name))
        except LocalEntryNotFoundError as error:
            # Without a network a file that is not in the cache may be missing there too.
            if found_any:
                return None
            raise OptionError(
                f"--tokenizer: '{tokenizer}' is no folder here, and Hugging Face cannot be reached: {error}"
            ) from None
        except EntryNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise OptionError(f"--tokenizer: '{tokenizer}' cannot be had from Hugging Face: {error}") from None
        found_any = True
        return path

    return find
