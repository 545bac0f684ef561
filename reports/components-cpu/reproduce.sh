#!/bin/sh
# Makes the report of the study components-cpu again. Run it in an empty folder or a checkout.
git checkout 837d582c47f8
mkdir -p ablations
cat > ablations/components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Which changes to softmax attention help a small language model of bytes? Eight components as on/off factors in a 16-cell
# fraction of their 256 combinations. Every main effect is estimated from all 48 runs: 24 with the component on against 24 with
# it off. The trainings are short; the effects are those of small models early in training.
study: components-cpu
question: Which components of attention change the bits per byte of a small model?

base:
  task: {name: enwik8, length: 256}
  variant: dense
  position: rotary
  model: {dim: 128, depth: 2, heads: 4}
  train: {steps: 500, batch_size: 8, lr: 2e-3, warmup: 50, precision: auto}
  evaluate: {valid_limit: 262144, test_limit: 524288}
  machine: {device: cpu, threads: 1, matmul_precision: medium, reuse_memory: true}

factors:
  - qk_norm
  - {name: gate, per: head}
  - sink
  - value_residual
  - exclusive
  - token_shift
  - softcap
  - forget_gate
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-7
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/components-cpu.yaml --workers 2
attnlab report components-cpu
