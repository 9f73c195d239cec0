"""Search for files in Google Drive, by the Drive API v3 (files.list).

Settings: ``GBNF_GOOGLE_TOKEN``, an OAuth 2.0 access token with the scope drive.metadata.readonly or wider
(drive.readonly to search contents); ``GBNF_GOOGLE_API_URL``, the URL of the API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    import httpx

    from gbnf_server.executors import Context

URL = "https://www.googleapis.com"
LIMIT = 10
FIELDS = "nextPageToken,files(id,name,mimeType,modifiedTime,webViewLink)"
TIMEOUT_S = 20.0


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Search Google Drive."""
    token = context.settings.get("GBNF_GOOGLE_TOKEN")
    if not token:
        raise ExecutorError(
            "Google Drive is not connected: set GBNF_GOOGLE_TOKEN to an access token, "
            "or use find_files for local files"
        )
    import httpx  # noqa: PLC0415  # only who has a token waits for it

    limit = arguments.get("limit", LIMIT)
    found: list[dict[str, Any]] = []
    query: dict[str, str | int] = {"q": _query(arguments["query"]), "fields": FIELDS}
    base = context.settings.get("GBNF_GOOGLE_API_URL", URL).rstrip("/")
    try:
        with httpx.Client(
            base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S
        ) as client:
            while len(found) < limit:
                query["pageSize"] = limit - len(found)
                page = _page(client.get("/drive/v3/files", params=query))
                found += page.get("files", [])
                if not page.get("nextPageToken"):
                    break
                query["pageToken"] = page["nextPageToken"]
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise ExecutorError(
            f"Google Drive at {base} did not answer: {type(error).__name__}: {error}"
        ) from None
    files = [
        {
            "name": each.get("name", ""),
            "link": each.get("webViewLink", ""),
            "modified": each.get("modifiedTime", ""),
        }
        for each in found[:limit]
    ]
    return {"entries": [each["name"] for each in files], "count": len(files), "files": files}


def _query(words: str) -> str:
    """Return a query of Drive's search language, which escapes ``\\`` and ``'`` by ``\\``."""
    escaped = words.replace("\\", "\\\\").replace("'", "\\'")
    return f"(name contains '{escaped}' or fullText contains '{escaped}') and trashed = false"


def _page(response: httpx.Response) -> dict[str, Any]:
    match response.status_code:
        case 200:
            pass
        case 401:
            raise ExecutorError(
                "Google Drive refuses the token: it has expired or is wrong; set GBNF_GOOGLE_TOKEN anew"
            )
        case 403:
            raise ExecutorError(f"Google Drive refuses the search: {_words(response)}")
        case 429:
            raise ExecutorError("Google Drive is asked too often: wait a minute and try again")
        case status:
            raise ExecutorError(f"Google Drive answered HTTP {status}: {_words(response)}")
    page = _json(response)
    if not isinstance(page, dict):
        raise ExecutorError("Google Drive's answer is no JSON object; is GBNF_GOOGLE_API_URL right?")
    return page


def _words(response: httpx.Response) -> str:
    """Return the API's error message, otherwise the start of the response."""
    match _json(response):
        case {"error": {"message": str(message)}}:
            return message
        case _:
            return " ".join(response.text.split())[:200]


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
