#!/usr/bin/env bash
# Brings the results back: merges verl's checkpoints into folders of Hugging Face's format, evaluates them by config.toml, and compares.
#
#   ./back.sh          all checkpoints
#   ./back.sh 150      the checkpoint of step 150
#
# Where this machine is too small for the model, serve the merged folder and evaluate through the server:
#   vllm serve merged/step-150
#   fgrpo eval config.toml --server http://localhost:8000 --model merged/step-150 --out eval/step-150
set -euo pipefail
cd "$(dirname "$0")"
MODEL=${MODEL:-{{ model }}}
RUN=${RUN:-run}
steps=("$@")
if [ "$#" = 0 ]; then
    for folder in "$RUN"/checkpoints/global_step_*; do steps+=("${folder##*_}"); done
fi
fgrpo eval config.toml --model "$MODEL"{% if full %} --full{% endif %} --out eval/step-0
for step in "${steps[@]}"; do
    merged=merged/step-$step
    if [ ! -f "$merged/config.json" ]; then
        python3 -m verl.model_merger merge --backend fsdp --local_dir "$RUN/checkpoints/global_step_$step/actor" --target_dir "$merged"
    fi
{%- if lora %}
    # verl merges the untrained base, and writes the adapter beside it.
    if [ ! -f "$merged-lora/config.json" ]; then
        fgrpo merge --model "$merged" --adapter "$merged/lora_adapter" --out "$merged-lora"
    fi
    merged=$merged-lora
{%- endif %}
    fgrpo eval config.toml --model "$merged"{% if full %} --full{% endif %} --out "eval/step-$step"
done
fgrpo compare eval/step-0 "eval/step-${steps[-1]}" -k {{ k | join(",") }}
{%- if row %}

# The paper's nine benchmarks with 1,024 samples per problem, for the last of these checkpoints. DATA is the folder of their files;
# `fgrpo eval --suite paper --data-root "$DATA" --dry-run` lists them, with the places to get them from.
if [ -n "${DATA:-}" ]; then
    fgrpo eval --suite paper --data-root "$DATA" --models "{{ row[1] }}=$merged" --out paper
    fgrpo paper {{ row[0] }} --from paper
fi
{%- endif %}
