// Chooses the experts of a row (y): p = softmax(logits), 0 for rows that have none; the `used` largest p, of
// equal ones those of lower index, in rising order of their index, with weights scale * p.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
#include "reduce.glsl"
PARAMETERS(Route);

const int kMaxExperts = 1024;
shared float share[kMaxExperts];
shared bool chosen[kMaxExperts];

void main() {
  const int row = int(gl_WorkGroupID.y), logits = row * p.stride;
  float top = -infinity(), bad = 0.0;
  for (int e = LANE; e < p.experts; e += GROUP) {
    const float x = p.logits.at[logits + e];
    if (is_nan(x) || floatBitsToUint(x) == 0x7f800000u) {
      bad = 1.0;
    } else {
      top = max(top, x);
    }
  }
  top = group_max(top);
  const bool none = group_max(bad) != 0.0 || !is_finite(top);
  precise float sum = 0.0;
  for (int e = LANE; e < p.experts; e += GROUP) {
    share[e] = none ? 0.0 : exp_(p.logits.at[logits + e] - top);
    sum += share[e];
  }
  const float total = group_sum(sum);
  for (int e = LANE; e < p.experts; e += GROUP) share[e] = none ? 0.0 : share[e] / total;
  barrier();
  for (int e = LANE; e < p.experts; e += GROUP) {
    int before = 0;
    for (int other = 0; other < p.experts; ++other)
      if (share[other] > share[e] || (share[other] == share[e] && other < e)) ++before;
    chosen[e] = before < p.used;
  }
  barrier();
  if (LANE != 0) return;
  precise float taken = 0.0;
  for (int e = 0; e < p.experts; ++e)
    if (chosen[e]) taken += share[e];
  int at = row * p.used;
  for (int e = 0; e < p.experts; ++e) {
    if (!chosen[e]) continue;
    const float weight = p.renormalise != 0 && taken > 0.0 ? share[e] / taken : share[e];
    p.ids.at[at] = e;
    p.weights.at[at++] = weight * p.scale;
  }
}
