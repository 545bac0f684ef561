#!/bin/sh
# Makes the report of the study copying again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > K07-lstm.yaml <<'END_OF_STUDY_FILE'
# Copying: rows of 5 to 8 symbols, and how well they are copied after a short training. A state could hold them; the claim is about
# the number of examples that learning takes.
study: copying
question: Does attention learn to copy from fewer examples than recurrent models?
base:
  task: {name: copy, length: 16}
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 300, batch_size: 64, lr: 3e-3, warmup: 0.1, precision: fp32}
  evaluate: {valid_limit: 500, test_limit: 1000}
  machine: {device: cpu, threads: 1}
grid:
  variant: [{name: dense, position: rotary}, lstm, {name: linear, position: none}, {name: ssd, short_conv: 4}]
seeds: 0-4
estimand: mean
baseline: {variant: {name: dense, position: rotary}}
margin: 0.05
claim:
  sentence: After a short training, an LSTM copies worse than attention.
  source: Jelassi et al. 2024, arXiv:2402.01032
  cell: {variant: lstm}
  direction: worse
  known: true
END_OF_STUDY_FILE
attnlab run K07-lstm.yaml --until-conclusive --max-seeds 20
attnlab report copying
