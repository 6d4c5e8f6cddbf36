"""The one error taxonomy. Every message is one line that says what is wrong and what to do."""


class KopubError(Exception):
    """Something a person has to put right; its message is the whole report."""


class ConfigError(KopubError):
    """A profile, a key or a value that cannot be used."""


class SourceError(KopubError):
    """Pages or queries that cannot be read as a corpus."""


class StoreError(KopubError):
    """A table that cannot be written or read; what was finished before is still there."""


class EngineError(KopubError):
    """An engine that cannot run at all: no page is to blame, and the next run tries again."""


class UndecodableImage(KopubError):
    """Bytes that are not a page image; only new bytes can change that."""


class HubError(KopubError):
    """A repository that cannot be read or written; nothing that is half there is ever tagged."""


class GateClosed(KopubError):
    """A made table that must not be published; the one before stays in place."""
