#!/bin/sh
# Makes the report of the study parts-of-attention again. Run it in an empty folder or a checkout.
git checkout 032497b822f8
mkdir -p ablations/claims
cat > ablations/claims/S04.yaml <<'END_OF_STUDY_FILE'
# Claims about the loss of attention, each a change to the same small language model of the text of Python's documentation. All
# cells share one baseline, so that a claim costs one cell, and are trained at the same learning rates.
study: parts-of-attention
question: Which changes to attention lower the loss of a small language model?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  layers:
    dense: {variant: dense}
    einsum: {variant: einsum}
    gate: {variant: {name: dense, with: gate}}
    value_residual: {variant: {name: dense, with: value_residual}}
    short_conv: {variant: {name: dense, with: short_conv}}
    sink: {variant: {name: dense, with: sink}}
    sigmoid: {variant: {name: dense, with: sigmoid}}
    no_wo: {variant: no_wo}
    differential: {variant: differential, model.heads: 2}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: A sigmoid gate on the outputs of the heads lowers the loss.
  source: Qiu et al. 2025, arXiv:2505.06708
  disputed: "nanochat: no improvement"
  abilities: abilities-cpu
  cell: {layers: gate}
  direction: better
END_OF_STUDY_FILE
attnlab run ablations/claims/S04.yaml --only layers=dense,gate,value_residual,sink --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --only layers=dense,gate,value_residual,sink --seeds 8-15 --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --only layers=dense,einsum,short_conv,sigmoid,no_wo,differential --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --seeds 0-27 --only layers=dense,gate,value_residual,sink --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --seeds 0-15 --only layers=dense,differential --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --seeds 0-27 --only layers=dense,gate,value_residual,sink --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --seeds 0-19 --only layers=dense,differential --workers 2 --no-report
attnlab run ablations/claims/S04.yaml --seeds 0-27 --only layers=dense,gate,value_residual,sink --workers 2 --no-report
attnlab report parts-of-attention
