#!/bin/sh
# Makes the report of the study state-recall-cpu again. Run it in an empty folder or a checkout.
git checkout ff8c1b3a46a2
mkdir -p ablations
cat > ablations/state-recall-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Recall at addresses that swaps of pointers move (Merrill et al. 2026, arXiv:2604.03444): attention can look up the bits, and a
# recurrence can follow the swaps. Is a block of each needed? With 8 bits and 3 pointers, and with 32 bits and 5 pointers.
# Tests score the pointers that moved. The recurrence has no short convolution, as in state-tracking-cpu.yaml. A training ends
# when its accuracy on valid reaches 0.995.
study: state-recall-cpu
question: Does state-based recall need a recurrence and attention together?

base:
  variant: dense
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 3000, batch_size: 32, lr: 2e-3, warmup: 0.1, eval_every: 250, stop_at: 0.995, precision: fp32}
  evaluate: {valid_limit: 200, test_limit: 1000}
  machine: {device: cpu, threads: 1}

grid:
  task:
    - {name: state_recall, bits: 8, pointers: 3, length: 19}
    - {name: state_recall, bits: 32, pointers: 5, length: 59}
  layers:
    attention: {variant: dense, position: rotary}
    recurrence: {variant: {name: delta, negative_eigenvalues: true, short_conv: 0}}
    hybrid:
      model.layers: [{name: delta, negative_eigenvalues: true, short_conv: 0}, {name: dense, position: none}]

seeds: 0-4
baseline: {layers: hybrid}
END_OF_STUDY_FILE
attnlab run ablations/state-recall-cpu.yaml --workers 2
attnlab run ablations/state-recall-cpu.yaml --until-conclusive --max-seeds 12 --workers 2
attnlab run ablations/state-recall-cpu.yaml --until-conclusive --max-seeds 12 --workers 2
attnlab run ablations/state-recall-cpu.yaml --until-conclusive --max-seeds 12 --only 'task=state_recall bits=8 pointers=3 length=19' --workers 2
attnlab report state-recall-cpu
