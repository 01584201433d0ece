// How the keys of a row are cut, and how the results of the pieces are joined.
#ifndef SPLIT_GLSL
#define SPLIT_GLSL
#include "math.glsl"

const int kSplitKeys = 256;  // vulkan/attention.cc has it too

/// First split of a row and the one after its last.
ivec2 splits_of(int position, int window) {
  const int oldest = window > 0 ? max(0, position - window + 1) : 0;
  return ivec2(oldest / kSplitKeys, position / kSplitKeys + 1);
}

/// Highest score and total weight of the keys so far.
struct Joined {
  float highest, total;
};

/// What the sums before and those of the next split are multiplied by.
struct Factors {
  float before, next;
};

Joined join(Joined before, Joined next, bool first, out Factors f) {
  f = Factors(0.0, 1.0);
  if (first) return next;
  const float highest = max(before.highest, next.highest);
  f = Factors(exp_(before.highest - highest), exp_(next.highest - highest));
  precise const float total = fma(before.total, f.before, next.total * f.next);
  return Joined(highest, total);
}

#endif
