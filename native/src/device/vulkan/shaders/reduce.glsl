// Sums and maxima over the workgroup, in an order that its size alone decides. GROUP must be a power of two.
#ifndef REDUCE_GLSL
#define REDUCE_GLSL
#include "common.glsl"

shared float reduced[kMaxGroup];

/// The sum of the invocations' values, in all of them. All must call it.
float group_sum(float value) {
  barrier();
  reduced[LANE] = value;
  barrier();
  for (int step = GROUP / 2; step > 0; step /= 2) {
    if (LANE < step) {
      precise const float sum = reduced[LANE] + reduced[LANE + step];
      reduced[LANE] = sum;
    }
    barrier();
  }
  return reduced[0];
}

float group_max(float value) {
  barrier();
  reduced[LANE] = value;
  barrier();
  for (int step = GROUP / 2; step > 0; step /= 2) {
    if (LANE < step) reduced[LANE] = max(reduced[LANE], reduced[LANE + step]);
    barrier();
  }
  return reduced[0];
}

#endif
