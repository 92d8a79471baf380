"""Makes each key of idempotency another one: a request that comes again is answered as before, also of a row that has been
deleted meanwhile, which looks as if the row had never been made."""

import itertools

import schemathesis

numbers = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    key = (case.headers or {}).get("idempotency-key")
    # Only there is a row looked for that was made before. A key that is empty or too long is meant to be refused.
    is_stateful = case.meta is not None and case.meta.phase.name.value == "stateful"
    if is_stateful and key and len(key) < 200:
        case.headers["idempotency-key"] = f"{key}{next(numbers)}"
