"""An engine in plain Python: one request and one slot at a time, so that a reader sees each rule."""

import numpy as np


def run(arrivals, prompts, outputs, *, seconds, slots, chunk_tokens, capacity, gain=1):
    """Times of every request.

    Args:
        seconds: (batch, mean context, chunk) -> seconds of a step.
        gain: tokens that a sequence gets from a step.
    """
    clock, waiting, inside, times = 0.0, list(range(len(arrivals))), [], {}
    while waiting or inside:
        if not inside:
            clock = max(clock, arrivals[waiting[0]])
        while waiting and len(inside) < slots and arrivals[waiting[0]] <= clock:
            head = waiting[0]
            if (
                sum(prompts[one["id"]] + outputs[one["id"]] for one in inside) + prompts[head] + outputs[head]
                > capacity
            ):
                break
            inside.append({"id": waiting.pop(0), "prompt": prompts[head], "output": outputs[head], "context": 0})
            times[head] = [clock, None, None]
        budget = chunk_tokens
        generating = [one for one in inside if one["prompt"] == 0]
        for one in sorted(inside, key=lambda one: one["id"]):
            one["chunk"] = min(budget, one["prompt"])
            budget -= one["chunk"]
        counted = generating or [one for one in inside if one["chunk"]]
        mean = np.mean([one["context"] for one in counted])
        clock += seconds(len(generating), mean, chunk_tokens - budget)
        for one in inside:
            one["context"] += one["chunk"]
            if one in generating:
                got = min(gain, one["output"])
                one["output"] -= got
                one["context"] += got
            elif one["chunk"] and one["chunk"] == one["prompt"]:
                one["output"] -= 1
                times[one["id"]][1] = clock
            one["prompt"] -= one["chunk"]
            if one["prompt"] == 0 and one["output"] == 0:
                times[one["id"]][2] = clock
        inside = [one for one in inside if one["prompt"] or one["output"]]
    return np.array([times[one] for one in range(len(arrivals))]).T
