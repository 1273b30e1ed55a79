"""`refork data check|convert|collect|cohort`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

Format = Literal["native", "csv", "parquet", "minari", "d4rl", "rllib"]
Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def check(*files: Path, schema: Path | None = None, out: Path | None = None) -> int:
    """Read a log of any format and print its data card, or the exact fault.

    Exit code 2 when a file cannot be read as declared. Several files (e.g. train and test) must not share a patient.

    Parameters
    ----------
    files
        Cohort table (.csv, .parquet), Minari folder, D4RL .hdf5, RLlib parquet, or a log folder.
    schema
        TOML file that declares what the columns are, or mimic_sepsis for the published layout; left out:
        FILE.schema.toml beside it.
    out
        Also write the card (several: a list of them) as JSON to this file.
    """
    import json
    from dataclasses import asdict

    from refork.envs.forkable import BadInput
    from refork.envs.home import check_writable
    from refork.scripts.data_cards import card_of, patients_in_two, show

    if not files:
        raise BadInput("refork data check: name at least one file")
    if out is not None:
        if out.is_dir():
            raise BadInput(f"{out}: is a folder; choose another --out")
        check_writable(out.absolute().parent, "choose another --out")
    cards, owners = [], []
    for file in files:
        card, names = card_of(file, schema)
        show(card)
        cards.append(asdict(card))
        owners.append((str(file), names))
    patients_in_two(owners)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(cards[0] if len(cards) == 1 else cards, indent=1) + "\n")
    return 0


def convert(file: Path, out: Path, *, schema: Path | None = None, to: Format = "native") -> int:
    """Convert a log of any format to another.

    Parameters
    ----------
    file
        As for `refork data check`.
    out
        File or folder to make; it must not be there yet.
    schema
        TOML file that declares what the columns are; left out: FILE.schema.toml beside it.
    to
        Format to write; native is a folder of plain arrays that training maps into memory.
    """
    import tempfile

    from refork.replay.formats.kinds import NATIVE, native_of, to_native, write_as
    from refork.replay.transitions import load
    from refork.scripts.data_cards import new_log

    with new_log(out, to), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as kept:
        if to == NATIVE:
            to_native(file, schema, out)
            log, made = load(out), [out]
        else:
            log = load(native_of(file, schema, Path(kept) / "log"))
            made = write_as(log, out, to)
        print(f"{len(log)} transitions in {', '.join(str(path) for path in made)}")
    return 0


def collect(
    env_id: str,
    out: Path,
    *,
    behaviour: str = "",
    episodes: Count = 2500,
    seed: int = 0,
    options: Annotated[dict[str, str] | None, Parameter(accepts_keys=True)] = None,
    to: Format = "native",
) -> int:
    """Write a log of a simulator's episodes.

    Parameters
    ----------
    env_id
        Id of the simulator, e.g. refork/IcuSepsis-v0.
    out
        File or folder to make; it must not be there yet.
    behaviour
        Who acts; left out: the simulator's first.
    episodes
        How many.
    seed
        Of the draw.
    options
        Of the simulator, as --options.key value.
    to
        Format to write.
    """
    from refork.envs.simulators import open_simulator
    from refork.replay.formats.kinds import write_as
    from refork.replay.transitions import of
    from refork.scripts.data_cards import new_log, plain

    simulator = open_simulator(env_id, {key: plain(value) for key, value in (options or {}).items()})
    log = of(simulator.log(behaviour or simulator.behaviours[0], episodes, seed))
    with new_log(out, to):
        made = write_as(log, out, to)
    print(f"{len(log)} transitions of {log.episodes} episodes in {', '.join(str(path) for path in made)}")
    return 0


def cohort(
    out: Path,
    *,
    patients: Count = 1000,
    seed: int = 0,
    behaviour: str = "clinician",
    channels: Literal["joint", "factored"] = "joint",
) -> int:
    """Write a synthetic cohort of septic patients, in the columns of the published layout, and its schema beside it.

    Made up: nothing in it comes from patients. With missing values, gaps in time and stays of 1 to 20 steps of 4 h.

    Parameters
    ----------
    out
        Table to make, .csv or .parquet; it must not be there yet.
    patients
        How many, one stay each.
    seed
        Of the draw.
    behaviour
        Who treats: clinician, protocol, random or never_treat.
    channels
        The schema declares one decision maker with 25 doses, or one per treatment.
    """
    from refork.envs.clinical.cohort import SyntheticCohort, table_schema
    from refork.envs.forkable import BadInput
    from refork.replay.formats.cohort_writer import check_schema_beside, write_table
    from refork.replay.formats.kinds import TABLES
    from refork.replay.formats.schema import schema_beside
    from refork.scripts.data_cards import new_log

    simulator, schema = SyntheticCohort(channels), schema_beside(out)
    simulator.policy(behaviour)
    if out.suffix.removeprefix(".") not in TABLES:
        raise BadInput(f"{out}: the name of a table ends in .csv or .parquet")
    text = table_schema(channels == "joint")
    with new_log(out, out.suffix.removeprefix(".")):
        check_schema_beside(out, text)
        write_table(simulator.table(behaviour, patients, seed), out)
        schema.write_text(text)
    print(f"{patients} patients in {out}; what its columns are: {schema}")
    return 0
