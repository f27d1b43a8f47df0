"""A task pack for lm-eval: math with several samples per problem, graded by our verifier, with pass@k.

``lm_eval --include_path "$(python -c 'import fgrpo.lm_eval as p; print(p.PATH)')" --tasks fgrpo_gsm8k``. Your own task
includes ``fgrpo_math_yaml`` and sets its data (docs/lm-eval.md).
"""

from pathlib import Path

#: The folder for ``--include_path``.
PATH = str(Path(__file__).parent)
