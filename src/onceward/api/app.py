"""The application: routes, errors as JSON, OpenAPI; behind the guard."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from onceward.api.config import ApiConfig
from onceward.api.guard import Guard
from onceward.api.routes import metrics, probe, v1
from onceward.api.served import Served
from onceward.errors import ConfigurationError, OncewardError
from onceward.version import __version__

log = logging.getLogger("onceward")


def build_app(served: Served) -> FastAPI:
    """Without the guard. No pages with documentation: they would load their scripts from elsewhere."""
    app = FastAPI(
        title="onceward",
        version=__version__,
        summary=f"The running job {served.context.job.name}",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.served = served
    for router in (probe, v1, metrics):
        app.include_router(router)
    answer_errors(app)
    described = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    described["components"].setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
    described["security"] = [{"token": []}]
    app.openapi_schema = described
    return app


def answer_errors(app: FastAPI) -> None:
    """Every error as JSON with a hint."""
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(ConfigurationError, _on_refused)
    app.add_exception_handler(OncewardError, _on_ours)
    app.add_exception_handler(Exception, _on_any)


def guarded_app(served: Served, config: ApiConfig, token: str) -> Guard:
    """What the server runs."""
    return Guard(build_app(served), config, token)


def _problem(
    status: int, error: str, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": error, "message": message, "hint": hint}, status_code=status, headers=headers)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException), "registered for it"
    name = HTTPStatus(error.status_code).phrase.title().replace(" ", "").replace("-", "")
    return _problem(error.status_code, name, error.detail, headers=error.headers)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    """Which part is wrong, without what was sent."""
    assert isinstance(error, RequestValidationError), "registered for it"
    told = "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5])
    return _problem(422, "Invalid", told, hint="see /openapi.json")


async def _on_refused(request: Request, error: Exception) -> JSONResponse:
    """What was asked for must not be done as things are."""
    assert isinstance(error, ConfigurationError), "registered for it"
    return _problem(409, type(error).__name__, error.message, hint=error.hint)


async def _on_ours(request: Request, error: Exception) -> JSONResponse:
    """The storage or a target does not answer: the run has its own way to deal with that."""
    assert isinstance(error, OncewardError), "registered for it"
    return _problem(503, type(error).__name__, error.message, hint=error.hint)


async def _on_any(request: Request, error: Exception) -> JSONResponse:
    """A target's own error in a look, or a mistake of ours: the caller gets its kind, the log the rest."""
    log.warning("the API failed to answer %s %s", request.method, request.url.path, exc_info=error)
    return _problem(500, "InternalError", type(error).__name__, hint="the driver's log has the traceback")
