"""The exception of math-verify's time limits."""


class TimeoutException(BaseException):
    """Raised with ``raise_on_error=True`` if a string or a comparison is too expensive. No time is measured."""
