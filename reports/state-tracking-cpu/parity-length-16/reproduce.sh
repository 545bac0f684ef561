#!/bin/sh
# Makes the report of the study state-tracking-cpu again. Run it in an empty folder or a checkout.
git checkout ff8c1b3a46a2
mkdir -p ablations
cat > ablations/state-tracking-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# A known pattern, as a test of the testbed: an LSTM and a linear recurrence with negative eigenvalues track the parity of bits,
# also at twice the trained length; attention and a recurrence whose eigenvalues lie in [0, 1] do not (Grazzi et al. 2024,
# arXiv:2411.12537). The recurrence has no short convolution, which would solve a part of short rows by itself. Products of S3,
# whose rotations need two reflections, are harder for one reflection a token. Tests at other lengths score the last quarter of a
# row, beyond the trained length.
study: state-tracking-cpu
question: Which variants track a state, and beyond the trained length?

base:
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 300, batch_size: 64, lr: 3e-3, warmup: 0.1, eval_every: 100, precision: fp32}
  evaluate: {lengths: [32, 64, 256], valid_limit: 500, test_limit: 500}
  machine: {device: cpu, threads: 1}

grid:
  task:
    - {name: parity, length: 16}
    - {name: group, group: s3, length: 8}
  variant:
    - {name: dense, position: rotary}
    - {name: dense, position: none}
    - lstm
    - {name: delta, short_conv: 0}         # eigenvalues in [0, 1]
    - {name: delta, negative_eigenvalues: true, short_conv: 0}

seeds: auto
baseline: {variant: {name: dense, position: rotary}}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/state-tracking-cpu.yaml --workers 2
attnlab run ablations/state-tracking-cpu.yaml --workers 2
attnlab report state-tracking-cpu
