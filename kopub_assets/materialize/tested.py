"""Whether an asset's engine passed its self-test: a run refuses one that failed, and names the test to a new one."""

from kopub_assets.materialize.asset import Run, ShardAsset
from resources.config.choices.gates import Gates
from resources.errors import GateClosed
from resources.store.records import self_tests


def require_tested(asset: ShardAsset, run: Run) -> None:
    """Raise `GateClosed` when the asset's engine failed the last self-test of its recipe, unless there is a reason.

    An engine that was never tested runs; before the first table that a GPU engine makes, the log says how to test it.
    """
    if asset.engine is None:
        return
    result = self_tests.find(asset.corpus.folder, asset.engine.recipe())
    gates: Gates = asset.resources["gates"]
    if result is None:
        can_be = asset.engine_section in self_tests.TESTED
        if can_be and asset.gpus and not asset.store.published(asset.name):
            run.log(
                f"{asset.name}: its engine was never tested on this machine: `kopub doctor` reads the samples with it"
            )
        return
    if result.passed:
        return
    reason = gates.self_test_override.strip()
    if not reason:
        raise GateClosed(
            f"the {result.section} engine {result.engine} {result}; mend it and run `kopub doctor` again, or give "
            "gates.self_test_override a reason to run it all the same"
        )
    run.warn(f"{asset.name}: its self-test {result}; it runs all the same, because: {reason}")
