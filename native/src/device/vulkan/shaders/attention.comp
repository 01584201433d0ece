// Causal attention of one query head (x) and row (y). The keys come in splits of kSplitKeys positions; of each
// the highest score m, the sum l of the weights exp(score - m) and the sums of weight * value are found, and
// splits are joined in rising order (split.glsl). A workgroup takes all splits of its row, or only the one of
// its z, which then goes to `partial` for attention_combine.
//
// Specialization constant 1: BF16, 1 or 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "kv.glsl"
#include "math.glsl"
#include "reduce.glsl"
#include "split.glsl"
PARAMETERS(Attention);

const int kMaxHeadWords = 512;  // of the query
shared float query[kMaxHeadWords];
shared float weights[kSplitKeys];

/// Scores of the keys [first, end) of a split into `weights`.
void score(int sequence, int kv_head, int split, int first, int end) {
  const int words = kv_words(p.head_dim);
  for (int j = first + LANE; j < end; j += GROUP) {
    const int block = p.block_table.at[sequence * p.max_blocks + j / p.block_size];
    const int key = (block * (p.heads / p.group) + kv_head) * words * p.block_size + j % p.block_size;
    precise float sum = 0.0;
    for (int i = 0; i < words; ++i) {
      const uint word = p.keys.at[key + i * p.block_size];
      if (BF16 != 0) {
        sum = fma(query[2 * i], uintBitsToFloat(word << 16), sum);
        if (2 * i + 1 < p.head_dim) sum = fma(query[2 * i + 1], uintBitsToFloat(word & 0xffff0000u), sum);
      } else {
        sum = fma(query[i], uintBitsToFloat(word), sum);
      }
    }
    sum *= p.scale;
    if (p.cap > 0.0) sum = p.cap * tanh_(sum / p.cap);
    weights[j - split * kSplitKeys] = sum;
  }
}

/// The weighted sum of dim d over the keys [first, end) of a split.
float mix(int sequence, int kv_head, int split, int first, int end, int d) {
  const int words = kv_words(p.head_dim), heads = p.heads / p.group;
  precise float sum = 0.0;
  for (int j = first; j < end; ++j) {
    const int block = p.block_table.at[sequence * p.max_blocks + j / p.block_size];
    const int value = ((block * heads + kv_head) * p.block_size + j % p.block_size) * words;
    float v;
    if (BF16 != 0) {
      const uint word = p.values.at[value + d / 2];
      v = uintBitsToFloat((d & 1) == 0 ? word << 16 : word & 0xffff0000u);
    } else {
      v = uintBitsToFloat(p.values.at[value + d]);
    }
    sum = fma(weights[j - split * kSplitKeys], v, sum);
  }
  return sum;
}

void main() {
  const int head = int(gl_WorkGroupID.x), row = int(gl_WorkGroupID.y), kv_head = head / p.group;
  const int position = p.positions.at[row], sequence = p.sequences.at[row];
  const ivec2 range = splits_of(position, p.window);
  const int oldest = p.window > 0 ? max(0, position - p.window + 1) : 0;
  ivec2 mine = range;
  if (p.splits != 0) mine = ivec2(range.x + int(gl_WorkGroupID.z), range.x + int(gl_WorkGroupID.z) + 1);
  if (mine.x >= range.y) return;

  for (int d = LANE; d < p.head_dim; d += GROUP) query[d] = p.q.at[row * p.q_stride + head * p.head_dim + d];
  barrier();
  const int out_ = row * p.out_stride + head * p.head_dim;
  const int partial = ((row * p.heads + head) * p.splits + int(gl_WorkGroupID.z)) * (p.head_dim + 2);
  Joined all = Joined(0.0, 0.0);
  for (int split = mine.x; split < mine.y; ++split) {
    const int first = max(oldest, split * kSplitKeys), end = min(position + 1, (split + 1) * kSplitKeys);
    score(sequence, kv_head, split, first, end);
    barrier();
    float highest = -infinity();
    for (int j = first + LANE; j < end; j += GROUP) highest = max(highest, weights[j - split * kSplitKeys]);
    highest = group_max(highest);
    // Key j is part of the sum of invocation j % GROUP, wherever the split's visible keys begin.
    precise float sum = 0.0;
    for (int i = LANE; i < kSplitKeys; i += GROUP) {
      const int j = split * kSplitKeys + i;
      if (j < first || j >= end) continue;
      const float weight = exp_(weights[i] - highest);
      weights[i] = weight;
      sum += weight;
    }
    const float total = group_sum(sum);
    const Joined before = all;
    Factors f;
    all = join(before, Joined(highest, total), split == mine.x, f);
    for (int d = LANE; d < p.head_dim; d += GROUP) {
      precise float value = mix(sequence, kv_head, split, first, end, d);
      if (p.splits != 0) {
        p.partial.at[partial + d] = value;
      } else {
        if (split != mine.x) value = fma(p.out_.at[out_ + d], f.before, value * f.next);
        p.out_.at[out_ + d] = split + 1 == mine.y ? value / all.total : value;
      }
    }
    barrier();
  }
  if (p.splits != 0 && LANE == 0) {
    p.partial.at[partial + p.head_dim] = all.highest;
    p.partial.at[partial + p.head_dim + 1] = all.total;
  }
}
