"""The few lines the sandbox's own interpreters start with: load modules from source under their real names.

Nothing of this package is installed where they run, and their `sys.path` is that of the code under test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_PACKAGE = "refork.envs.swe.sandbox"
_LOADER = """
import json, sys, types
sys.path[:] = [p for p in sys.path if p]
config = json.loads(sys.argv[1])
package = types.ModuleType("{package}")
sys.modules[package.__name__] = package
for name in config["modules"]:
    path = config["folder"] + "/" + name + ".py"
    module = types.ModuleType(package.__name__ + "." + name)
    module.__file__ = path
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(open(path, encoding="utf-8").read(), path, "exec"), module.__dict__)
"""
_STAGE = _LOADER + "package.stage.run(config)\n"
_ZYGOTE = (
    _LOADER
    + """
request = package.zygote.run(config)
name = package.warm.become_fresh(request)
package_warm_end = package.warm.end_with
del package, module, config, request, types, json, path
import runpy
try:
    runpy._run_module_as_main(name)
except SystemExit:
    raise
except BaseException as error:
    package_warm_end(error)
"""
)
_ZYGOTE_MODULES = ("linux", "wire", "seccomp", "inside", "warm", "zygote")
_STAGE_MODULES = ("linux", "wire", "stage")


def stage_command(interpreter: str, config: dict[str, Any], zygote: dict[str, Any]) -> list[str]:
    """The command that builds the system tree and then becomes the spawner, configured by `zygote`."""
    following = {**zygote, "modules": _ZYGOTE_MODULES, "folder": "/refork"}
    first = {
        **config,
        "modules": _STAGE_MODULES,
        "folder": str(_HERE),
        "sources": {f"{name}.py": str(_HERE / f"{name}.py") for name in _ZYGOTE_MODULES},
        "bootstrap": _ZYGOTE.replace("{package}", _PACKAGE),
        "next": json.dumps(following),
    }
    return [interpreter, "-I", "-S", "-c", _STAGE.replace("{package}", _PACKAGE), json.dumps(first)]
