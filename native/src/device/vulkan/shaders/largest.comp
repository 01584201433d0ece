// The values of a row that come first in the order of device/largest.h. Compared as integers: no device may flush or
// rearrange those, and the columns decide between equal ones.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
PARAMETERS(Largest);

struct Entry {
  uint key, column, bits;
};

/// Larger for what comes first; 0 for no value at all.
uint key_of(uint bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  if (bits == 0x80000000u) bits = 0u;
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

bool before(Entry a, Entry b) { return a.key > b.key || (a.key == b.key && a.column < b.column); }

const Entry kNone = Entry(0u, 0xffffffffu, 0u);
shared uint keys[kMaxGroup], columns[kMaxGroup], all_bits[kMaxGroup];

void main() {
  const int row = int(gl_WorkGroupID.y), span = int(gl_WorkGroupID.x);
  const int first = span * p.span, end = min(first + p.span, p.elements), start = row * p.x_stride;
  const int out_ = (row * int(gl_NumWorkGroups.x) + span) * p.count * 2;
  // Of the elements LANE, LANE + GROUP, ... of the span: the one that comes next, behind the last it gave.
  Entry last = Entry(0xffffffffu, 0u, 0u), next;
  bool gave = false, look = true;
  for (int i = 0; i < p.count; ++i) {
    if (look) {
      next = kNone;
      for (int e = first + LANE; e < end; e += GROUP) {
        Entry entry;
        if (p.is_pairs != 0) {
          entry.column = p.x.at[start + 2 * e];
          entry.bits = p.x.at[start + 2 * e + 1];
          if (entry.column == 0xffffffffu) continue;
        } else {
          entry.column = uint(e);
          entry.bits = p.x.at[start + e];
        }
        entry.key = key_of(entry.bits);
        if ((!gave || before(last, entry)) && before(entry, next)) next = entry;
      }
    }
    keys[LANE] = next.key;
    columns[LANE] = next.column;
    all_bits[LANE] = next.bits;
    barrier();
    for (int step = GROUP / 2; step > 0; step /= 2) {
      if (LANE < step) {
        const int other = LANE + step;
        if (keys[other] > keys[LANE] || (keys[other] == keys[LANE] && columns[other] < columns[LANE])) {
          keys[LANE] = keys[other];
          columns[LANE] = columns[other];
          all_bits[LANE] = all_bits[other];
        }
      }
      barrier();
    }
    look = next.key != 0u && columns[0] == next.column;
    if (look) {
      last = next;
      gave = true;
    }
    if (LANE == 0) {
      p.out_.at[out_ + 2 * i] = columns[0];
      p.out_.at[out_ + 2 * i + 1] = all_bits[0];
    }
    barrier();
  }
}
