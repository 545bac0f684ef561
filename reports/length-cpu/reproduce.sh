#!/bin/sh
# Makes the report of the study length-cpu again. Run it in an empty folder or a checkout.
git checkout fc3c66f08a78
mkdir -p ablations
cat > ablations/length-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Copying beyond the trained length by position scheme (Kazemnejad et al. 2023, arXiv:2305.19466): strings of 5 to 8 symbols in
# training, of 9 to 16 at length 32, of 17 to 32 at length 64. Learned positions have no vector beyond the trained length.
study: length-cpu
question: Which position schemes copy strings longer than those of training?

base:
  task: {name: copy, length: 16}
  model: {dim: 64, depth: 2, heads: 2}
  train: {steps: 500, batch_size: 64, lr: 3e-3, warmup: 0.1, eval_every: 100, precision: fp32}
  evaluate: {lengths: [32, 64], valid_limit: 500, test_limit: 500}
  machine: {device: cpu, threads: 1}

grid:
  variant: [dense]
  position: [none, t5, alibi, rotary, learned]

seeds: 0-2
baseline: {position: rotary}
estimand: mean
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/length-cpu.yaml --workers 1 --no-report
attnlab report length-cpu
