// What the kernels of products with the matrices of experts have in common. A workgroup computes some outputs
// of a block of ROWS choices of one expert (y), or where ROWS is 1 of choice y.
#ifndef EXPERT_GLSL
#define EXPERT_GLSL
PARAMETERS(ExpertMatmul);

const int kExpertWords = 10;

/// Choice r of the block, which has one or more if any; -1: none.
int choice(int r) {
  const int block = int(gl_WorkGroupID.y);
  return ROWS == 1 ? block : p.blocks.at[block * ROWS + r];
}
int entry() { return p.ids.at[choice(0)] * kExpertWords; }
uvec2 address(int at) { return uvec2(p.matrices.at[at], p.matrices.at[at + 1]); }

/// Whether there is such a block. Matrices of other formats than FORMAT are left to other dispatches.
bool is_mine() { return choice(0) >= 0 && int(p.matrices.at[entry() + 8]) == FORMAT; }
Words my_matrix() { return Words(address(entry())); }
Ints my_order() { return Ints(address(entry() + 4)); }
bool has_order() { return p.matrices.at[entry() + 7] != 0u; }
int my_row_words() { return int(p.matrices.at[entry() + 9]); }
/// The row of x of choice r of the block, or where there is none that of another.
int x_row(int r) {
  const int mine = max(choice(r), choice(0));
  return p.rows_of_x != 0 ? mine / p.used : mine;
}

/// Writes the sum of choice r of the block and an output, if there is such a one.
void put(float sum, int r, int output_) {
  if (output_ >= p.weight_rows) return;
  const int mine = choice(r), scale_kind = int(p.matrices.at[entry() + 6]);
  if (mine < 0) return;
  precise float value = sum;
  if (scale_kind != 0) value *= Floats(address(entry() + 2)).at[scale_kind == 1 ? 0 : output_];
  p.out_.at[mine * p.out_stride + output_] = value;
}

#endif
