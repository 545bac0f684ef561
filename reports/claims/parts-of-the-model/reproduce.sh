#!/bin/sh
# Makes the report of the study parts-of-the-model again. Run it in an empty folder or a checkout.
git checkout 032497b822f8
mkdir -p ablations/claims
cat > ablations/claims/S01.yaml <<'END_OF_STUDY_FILE'
# Claims about the loss that concern the rest of the model, or its training. All cells share one baseline and are trained at the
# same learning rates.
study: parts-of-the-model
question: Which changes to the model or its training lower the loss of a small language model?
base:
  task: {name: pydocs, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, warmup: 0.1, precision: fp32}
  machine: {device: cpu, threads: 1, reuse_memory: true}
grid:
  change:
    plain: {model.heads: 4}
    swiglu: {model.feed_forward: swiglu}
    rms_norm: {model.norm_type: rms}
    one_head: {model.heads: 1}
    tied: {model.tie_embeddings: true}
    muon: {train.optimizer: muon}
sweep: {train.lr: [2.5e-3, 5e-3, 1e-2, 2e-2]}
seeds: 0-7
baseline: {change: plain}
metric: bits_per_byte
margin: 0.02
claim:
  sentence: A SwiGLU feed-forward lowers the loss, compared with GELU and as many parameters.
  source: Shazeer 2020, arXiv:2002.05202, table 1
  disputed: "nanochat: with as many parameters, worse than the squared ReLU at two depths"
  published: 1.944 ± 0.010 nats per token with SwiGLU and 1.983 ± 0.005 with GELU, a T5 after 65,536 steps (0.013 bits per byte with 4.3 bytes a token)
  size: 0.013
  abilities: abilities-of-the-model-cpu
  cell: {change: swiglu}
  direction: better
END_OF_STUDY_FILE
attnlab run ablations/claims/S01.yaml --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S01.yaml --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S01.yaml --only change=plain,swiglu,rms_norm --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S01.yaml --only change=plain,swiglu,rms_norm --seeds 8-15 --until-conclusive --max-seeds 20 --workers 2 --no-report
attnlab run ablations/claims/S01.yaml --seeds 0-21 --only change=plain,swiglu,rms_norm --workers 1 --no-report
attnlab report parts-of-the-model
