#!/bin/sh
# Makes the report of the study linear-and-rotary-attention again. Run it in an empty folder or a checkout.
cat > N07-rotary.yaml <<'END_OF_STUDY_FILE'
# Linear attention has no logits that rotary positions could change. Here it goes without positions, and its rival is what
# language models use today: the baseline of parts-of-attention (S04.yaml).
study: linear-and-rotary-attention
question: Is linear attention as good as softmax attention with rotary positions in a small language model?
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
    linear: {variant: linear, position: none}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
baseline: {layers: dense}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: Linear attention performs like softmax attention with rotary positions.
  source: Katharopoulos et al. 2020, arXiv:2006.16236, who compare with softmax attention under the same positions
  cell: {layers: linear}
  direction: equivalent
END_OF_STUDY_FILE
attnlab run N07-rotary.yaml
attnlab report linear-and-rotary-attention
