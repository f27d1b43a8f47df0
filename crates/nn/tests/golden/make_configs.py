"""Makes files that need transformers, but not torch:

    python crates/nn/tests/golden/make_configs.py

    config_keys.json       for each model type that is read, the keys of transformers' configuration class with their defaults. The script
                           was run with 4.57.6 and then with 5.24.0, whose defaults replace the older ones.
    mistral3/config.json   the model of ministral3/ as the text part of Mistral 3
"""

import json
import pathlib

import transformers
from transformers import CONFIG_MAPPING

HERE = pathlib.Path(__file__).parent
TYPES = [
    "gemma3", "gemma3_text", "gemma4", "gemma4_text", "granite", "lfm2", "llama", "ministral3", "mistral", "mistral3", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_5", "qwen3_5_text",
    "smollm3",
]


def keys(path):
    found = json.loads(path.read_text()) if path.exists() else {"transformers": [], "keys": {}}
    found["transformers"] = sorted({*found["transformers"], transformers.__version__})
    for name in TYPES:
        if name in CONFIG_MAPPING:
            values = CONFIG_MAPPING[name]().to_dict()
            # The parts of a multimodal model are configurations themselves.
            parts = {part: {} for part in ("text_config", "vision_config", "audio_config") if part in values}
            found["keys"].setdefault(name, {}).update(values | parts)
    lines = [f"{json.dumps(name)}: {json.dumps(found['keys'][name], sort_keys=True)}" for name in sorted(found["keys"])]
    path.write_text('{"transformers": %s, "keys": {\n%s\n}}\n' % (json.dumps(found["transformers"]), ",\n".join(lines)))


def mistral3(folder):
    text = CONFIG_MAPPING["ministral3"](**json.loads((HERE / "ministral3" / "config.json").read_text()))
    whole = CONFIG_MAPPING["mistral3"](
        architectures=["Mistral3ForConditionalGeneration"], text_config=text, tie_word_embeddings=text.tie_word_embeddings, dtype="float32")
    whole.save_pretrained(folder)


if __name__ == "__main__":
    keys(HERE / "config_keys.json")
    if "ministral3" in CONFIG_MAPPING:
        mistral3(HERE / "mistral3")
