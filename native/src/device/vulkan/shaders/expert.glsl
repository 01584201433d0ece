// What the kernels of products with the matrices of experts have in common. A workgroup computes OUTPUTS outputs
// of one choice (y). The includer has product.glsl or product_dot.glsl, ROWS is 1.
#ifndef EXPERT_GLSL
#define EXPERT_GLSL
PARAMETERS(ExpertMatmul);

const int kExpertWords = 10;

int choice() { return int(gl_WorkGroupID.y); }
int entry() { return p.ids.at[choice()] * kExpertWords; }
uvec2 address(int at) { return uvec2(p.matrices.at[at], p.matrices.at[at + 1]); }

/// Matrices of other formats than FORMAT are left to other dispatches.
bool is_mine() { return int(p.matrices.at[entry() + 8]) == FORMAT; }
Words my_matrix() { return Words(address(entry())); }
Ints my_order() { return Ints(address(entry() + 4)); }
bool has_order() { return p.matrices.at[entry() + 7] != 0u; }
/// First word of the row of the matrix that this invocation works on.
int my_matrix_row() {
  const int mine = min(int(gl_WorkGroupID.x) * OUTPUTS + LANE / LANES, p.weight_rows - 1);
  return mine * int(p.matrices.at[entry() + 9]);
}
int x_row() { return p.rows_of_x != 0 ? choice() / p.used : choice(); }

/// Writes the sum that product() returned.
void put(float sum) {
  const int o = int(gl_WorkGroupID.x) * OUTPUTS + result_output(), scale_kind = int(p.matrices.at[entry() + 6]);
  if (LANE >= OUTPUTS || o >= p.weight_rows) return;
  precise float value = sum;
  if (scale_kind != 0) value *= Floats(address(entry() + 2)).at[scale_kind == 1 ? 0 : o];
  p.out_.at[choice() * p.out_stride + o] = value;
}

#endif
