// Groups the choices of all rows by expert, so that a product reads the matrix of an expert once for a block of
// them. There must be room for all blocks: sum of the experts' numbers of choices / size, rounded up.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMETERS(ExpertBlocks);

const int kMaxExperts = 1024, kStaged = 1024;
shared int staged[kStaged];    // experts of some choices that follow each other
shared int next[kMaxExperts];  // choices of the expert, then where in `blocks` its next one goes

void main() {
  for (int e = LANE; e < p.experts; e += GROUP) next[e] = 0;
  for (int i = LANE; i < p.most_blocks * p.size; i += GROUP) p.blocks.at[i] = -1;
  memoryBarrierBuffer();
  barrier();
  for (int c = LANE; c < p.choices; c += GROUP) atomicAdd(next[p.ids.at[c]], 1);
  barrier();
  const int each = (p.experts + GROUP - 1) / GROUP;
  const int first = min(LANE * each, p.experts), end = min(first + each, p.experts);
  int blocks = 0;
  for (int e = first; e < end; ++e) blocks += (next[e] + p.size - 1) / p.size;
  staged[LANE] = blocks;
  barrier();
  int before = 0;
  for (int lane = 0; lane < LANE; ++lane) before += staged[lane];
  for (int e = first; e < end; ++e) {
    const int count = next[e];
    next[e] = before * p.size;
    before += (count + p.size - 1) / p.size;
  }
  for (int start = 0; start < p.choices; start += kStaged) {
    const int here = min(kStaged, p.choices - start);
    barrier();
    for (int i = LANE; i < here; i += GROUP) staged[i] = p.ids.at[start + i];
    barrier();
    for (int e = LANE; e < p.experts; e += GROUP)
      for (int i = 0; i < here; ++i)
        if (staged[i] == e) p.blocks.at[next[e]++] = start + i;
  }
}
