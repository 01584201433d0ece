// Causal attention of one query head (x) and row (y). The keys come in splits of kSplitKeys positions; of each
// the highest score m, the sum l of the weights exp(score - m) and the sums of weight * value are found, and
// splits are joined in rising order (split.glsl). A workgroup takes all splits of its row, or only the one of
// its z, which then goes to `partial` for attention_combine.
//
// With STORAGE16 values of bf16 are read one by one, else in pairs, each by two invocations.
//
// Specialization constant 1: BF16, 1 or 0.
#ifdef STORAGE16
#extension GL_EXT_shader_16bit_storage : require
#endif
#include "kv.glsl"
#include "math.glsl"
#include "reduce.glsl"
#include "split.glsl"
PARAMETERS(Attention);

const int kMaxHeadDim = 512;  // vulkan/attention.cc has it too
shared float query[kMaxHeadDim + 1];
shared float weights[kSplitKeys];

/// `sum` and the product of word i of a key with the query.
float add_word(float sum, int i, uint word) {
  if (BF16 == 0) return fma(query[i], uintBitsToFloat(word), sum);
  const float low = fma(query[2 * i], uintBitsToFloat(word << 16), sum);
  return fma(query[2 * i + 1], uintBitsToFloat(word & 0xffff0000u), low);  // 0 beyond an odd head_dim
}

/// Scores of the keys [first, end) of a split into `weights`. Loops take four steps a turn: drivers on the CPU
/// limit the turns that an invocation makes.
void score(int sequence, int kv_head, int split, int first, int end) {
  const int words = kv_words(p.head_dim), step = p.block_size;
  for (int j = first + LANE; j < end; j += GROUP) {
    const int block = p.block_table.at[sequence * p.max_blocks + j / step];
    const int key = (block * (p.heads / p.group) + kv_head) * words * step + j % step;
    precise float sum = 0.0;
    int i = 0;
    for (; i + 4 <= words; i += 4)
      [[unroll]] for (int n = i; n < i + 4; ++n) sum = add_word(sum, n, p.keys.at[key + n * step]);
    for (; i < words; ++i) sum = add_word(sum, i, p.keys.at[key + i * step]);
    sum *= p.scale;
    if (p.cap > 0.0) sum = p.cap * tanh_(sum / p.cap);
    weights[j - split * kSplitKeys] = sum;
  }
}

#ifdef STORAGE16
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Halves { uint16_t at[]; };
#endif

/// Dim d of the value that starts at word `at`.
float value_of(int at, int d) {
#ifdef STORAGE16
  if (BF16 != 0) return uintBitsToFloat(uint(Halves(uvec2(p.values)).at[2 * at + d]) << 16);
#else
  if (BF16 != 0) {
    const uint word = p.values.at[at + d / 2];
    return uintBitsToFloat((d & 1) == 0 ? word << 16 : word & 0xffff0000u);
  }
#endif
  return uintBitsToFloat(p.values.at[at + d]);
}

/// The weighted sum of dim d over the keys [first, end) of a split.
float mix(int sequence, int kv_head, int split, int first, int end, int d) {
  const int words = kv_words(p.head_dim), heads = p.heads / p.group;
  precise float sum = 0.0;
  for (int j = first; j < end;) {
    const int slot = j % p.block_size, count = min(end - j, p.block_size - slot);
    const int block = p.block_table.at[sequence * p.max_blocks + j / p.block_size];
    const int value = ((block * heads + kv_head) * p.block_size + slot) * words, at = j - split * kSplitKeys;
    int i = 0;
    for (; i + 4 <= count; i += 4)
      [[unroll]] for (int n = i; n < i + 4; ++n)
        sum = fma(weights[at + n], value_of(value + n * words, d), sum);
    for (; i < count; ++i) sum = fma(weights[at + i], value_of(value + i * words, d), sum);
    j += count;
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

  const int q = row * p.q_stride + head * p.head_dim;
  for (int d = LANE; d < p.head_dim + 1; d += GROUP) query[d] = d < p.head_dim ? p.q.at[q + d] : 0.0;
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
