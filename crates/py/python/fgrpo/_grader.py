"""Answers questions of `fgrpo` with a user's function: reads a JSON line and writes a JSON line (see program.rs). `fgrpo` runs this
file without the package."""

import asyncio
import contextlib
import functools
import importlib.util
import inspect
import io
import json
import math
import os
import sys
import threading
import traceback

SHOWN = 4000  # maximum number of characters of printed output and tracebacks that are passed on
OWN = ("<string>", "_grader.py", "_environment.py")  # files whose frames are left out at the start of a traceback


@functools.cache
def event_loop():
    """Event loop for all coroutines, in a separate thread, because a notebook's thread already runs a loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fgrpo-async", daemon=True).start()
    return loop


def settled(value):
    """Returns the value, or the result of awaiting it."""
    if not inspect.isawaitable(value):
        return value

    async def outcome():
        try:
            return await value, None
        except BaseException as error:  # SystemExit would end the loop
            return None, error

    waiting = asyncio.run_coroutine_threadsafe(outcome(), event_loop())
    try:
        result, error = waiting.result()
    finally:
        waiting.cancel()
    if error is not None:
        raise error
    return result


def load(path, name):
    folder, file = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(os.path.splitext(file)[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function) and not isinstance(function, dict):
        named = ((n, v) for n, v in vars(module).items() if inspect.isfunction(v) or inspect.isclass(v))
        defined = [n for n, v in named if v.__module__ == spec.name]
        raise LookupError(f"{path}: found nothing callable that is called {name}; it defines {', '.join(defined) or 'none'}")
    return function


def caller(function):
    """Returns a function that grades the completion of a question by calling ``function``, with single values or with lists as in TRL."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of an extension module
        parameters = {}
    every = not parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    lists = "completions" in parameters or "environments" in parameters
    verl = {"solution_str", "ground_truth"} <= set(parameters)

    def call(question):
        # A column named answer_text takes precedence.
        row = {"answer_text": question["answer_text"], **question["problem"]}
        completion = question["completion"]
        if lists:
            # TRL passes messages if the prompt consists of messages.
            messages = isinstance(row.get("prompt"), list)
            given = {name: [value] for name, value in row.items()}
            given["prompts"] = given.pop("prompt", [None])
            given["completions"] = [[{"role": "assistant", "content": completion}] if messages else completion]
            given.update(question.get("episode", {}))
        else:
            given = {**row, "completion": completion}
            if verl:
                # verl's columns, or their counterparts in other rows.
                stated = row.get("answer", row.get("solution"))
                truth = (row.get("reward_model") or {}).get("ground_truth", stated)
                given = {"data_source": None, "extra_info": None, "ground_truth": truth, **given, "solution_str": completion}
        result = settled(function(**{name: value for name, value in given.items() if every or name in parameters}))
        if lists and not hasattr(result, "__len__"):
            raise TypeError(f"expected a list with one reward for each completion, returned {result!r}")
        if lists and len(result) != 1:
            raise ValueError(f"returned {len(result)} rewards for one completion")
        return result[0] if lists else result

    return call


def graded(result):
    """Converts a result to an answer line. A result is a number, bool, None, or a dict with `score` or `reward` and optionally `rewards`."""
    reason, rewards = None, {}
    if isinstance(result, dict):
        reason = result.get("reason")
        rewards = {str(name): float(value) for name, value in (result.get("rewards") or {}).items()}
        if "score" not in result and "reward" not in result:
            raise TypeError(f"expected a dict with the key score, returned a dict with {', '.join(map(str, result)) or 'nothing'}")
        result = result["score"] if "score" in result else result["reward"]
    if result is None:
        return {"unscorable": str(reason or "the grader returned None")}
    if isinstance(result, (str, bytes)):
        raise TypeError(f"expected a number, returned the string {result!r}")
    score = float(result)
    values = [score, *rewards.values()]
    if any(map(math.isinf, values)):
        raise ValueError(f"expected finite numbers, returned {', '.join(map(str, values))}")
    if any(map(math.isnan, values)):
        return {"unscorable": "the grader returned NaN"}
    return {"score": score, "rewards": rewards}


def reply(call, question, log):
    """Answers a question. The traceback of an exception is written to `log`."""
    try:
        result = call(question)
        return result if "ask" in question else graded(result)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit, because a grader that exits hasn't graded
        trace = error.__traceback__
        while trace and (os.path.basename(file := trace.tb_frame.f_code.co_filename) in OWN or file.startswith("<frozen importlib")):
            trace = trace.tb_next
        log.write("".join(traceback.format_exception(type(error), error, trace)))
        return {"unscorable": f"raised {type(error).__name__}: {error}".rstrip(": ")}


def main(path, name, make=caller):
    # Printed output of the function, its imports and its child processes must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        call = make(load(path, name))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        broken, where = error, error.__traceback__  # raised for every question

        def call(question):
            raise broken.with_traceback(where)

    for line in sys.stdin.buffer:
        question = json.loads(line)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            said = reply(call, question, printed)
        said["id"] = question["id"]
        if printed.tell():
            said["printed"] = printed.getvalue()[-SHOWN:]
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    # `answering` exists if _environment.py or _estimator.py precedes this file in the script.
    main(*sys.argv[1:], globals().get("answering", caller))
