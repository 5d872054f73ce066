"""A scenario form filled from a file, or one readable message about what is wrong with it."""

import json
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from collectives.errors import InputError
from collectives.suggestions import suggest
from scenarios.forms import ScenarioForm, form_at

# pydantic's error types in the words of a scenario file
WORDS = {
    "model_type": "should be a table",
    "list_type": "should be a list",
    "int_type": "should be a whole number",
    "float_type": "should be a number",
    "string_type": "should be a text in quotes",
    "bool_type": "should be true or false",
    "string_too_short": "should not be empty",
}


def read_form(content: dict[str, Any], where: str) -> ScenarioForm:
    """The form that ``content`` fills. Raises InputError that names file and key, the value and what is accepted."""
    try:
        return ScenarioForm.model_validate(content)
    except ValidationError as error:
        problems = error.errors()
        # A misspelt key also makes the right one missing; the misspelling is what the user has to hear of.
        first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
        raise InputError(f"{where}: {_describe(first)}") from error


def _describe(problem: ErrorDetails) -> str:
    place, key = problem["loc"], ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{key} is no known key; {suggest(str(place[-1]), list(form_at(place[:-1]).model_fields))}"
    if problem["type"] == "missing":
        return f"{key} is missing; give {form_at(place[:-1]).model_fields[str(place[-1])].description}"
    if problem["type"] == "value_error":
        said = str(problem["ctx"]["error"])
        return f"{key}: {said}" if key else said
    accepted = WORDS.get(problem["type"]) or problem["msg"].removeprefix("Input ").removeprefix("List ")
    return f"{key} = {_shown(problem['input'])} {accepted}"


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}..."
