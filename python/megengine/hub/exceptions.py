"""Errors that fetching a repository may raise."""


class FetcherError(Exception):
    """Base class: the repository cannot be had."""


class InvalidRepo(FetcherError):
    """The name is not of the form "owner/repository[:branch]"."""


class InvalidGitHost(FetcherError):
    """The name of the host is not the name of a host."""


class GitPullError(FetcherError):
    """git or the download failed."""


class GitCheckoutError(FetcherError):
    """The branch or commit does not exist."""


class InvalidProtocol(FetcherError):
    """The protocol is neither HTTPS nor SSH."""
