import platform


def greeting(name: str) -> str:
    return f"Hello, {name}! This is Python {platform.python_version()}."
