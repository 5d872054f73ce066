"""The table of ``ringlab profile``: a row a block of the model."""

from rich.console import Console

from collectives.units import format_size, format_time
from ringlab.answers.model_profiling import ProfileAnswer, ProfiledBlock
from ringlab.table import NOTHING, format_digits, make_table

MOST_ROWS = 40


def show_profile(answer: ProfileAnswer, console: Console) -> None:
    """Print what each block computes, keeps and takes, and the sums."""
    profile, blocks = answer.profile, answer.blocks()
    shown = blocks if len(blocks) <= MOST_ROWS else [*blocks[: MOST_ROWS // 2], *blocks[-MOST_ROWS // 2 :]]
    rows = [_row(block) for block in shown]
    if len(shown) < len(blocks):
        rows.insert(MOST_ROWS // 2, [f"... {len(blocks) - len(shown)} more", *[""] * 5])
    headings = ["block", "parameters", "forward\nGFLOP", "backward\nGFLOP", "kept", "forward", "backward"]
    measured = profile.measured[-1] if profile.measured else None
    if measured is None:
        headings, rows = headings[:5], [row[:5] for row in rows]
    title = f"{profile.model}: {profile.parameters:,} parameters; a sample is {profile.sample}"
    console.print(make_table(title, headings, rows, words=1))
    console.print(
        f"A sample takes {format_digits(profile.forward_flops / 1e9)} GFLOP forward, "
        f"{format_digits(profile.backward_flops / 1e9)} backward, and keeps {format_size(profile.saved_bytes)}.",
        soft_wrap=True,
    )
    if measured is not None:
        rate = measured.batch_size / measured.step if measured.step else 0.0
        console.print(
            f"A batch of {measured.batch_size} in {measured.said_precision} on {measured.device}: forward "
            f"{format_time(sum(measured.forward))}, backward {format_time(sum(measured.backward))}, optimizer "
            f"{format_time(measured.optimizer)}"
            + (f", loading {format_time(measured.loading)}" if measured.loading else "")
            + f"; {format_digits(rate)} samples/s.",
            soft_wrap=True,
        )


def _row(block: ProfiledBlock) -> list[str]:
    times = [NOTHING if seconds is None else format_time(seconds) for seconds in (block.forward_s, block.backward_s)]
    flops = [format_digits(each / 1e9) for each in (block.forward_flops, block.backward_flops)]
    return [block.name, f"{block.parameters:,}", *flops, format_size(block.saved_bytes), *times]
