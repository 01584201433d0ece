// Parameters of the shaders, read by C++ and by GLSL alike: the push constants of SHADER.comp are the struct
// of its name. Addresses (Floats, Words, Ints, Quads) come first, then 32-bit values, so that both languages
// lay the struct out the same. Counts are in elements: of f32 where the address is Floats, of 32-bit words
// else.
//
// Strides are from one row to the next. A flag is 0 or 1.

// First point of each grid of base/iq_grids.h in `tables`, two points a word.
const int kGridIq1 = 0, kGridIq2Xxs = 2048, kGridIq2Xs = 2304, kGridIq2S = 2816, kGridIq3Xxs = 3840,
          kGridIq3S = 4096, kGridPoints = 4608;

struct RmsNorm {
  Floats x, weight, out_;
  int cols, x_stride, out_stride;
  int accumulate;
  float eps;
};

// One workgroup a row and head.
struct NormRope {
  Floats x, norm, table;  // table: [rows][cos, sin][pairs], magnitude included
  int stride, head_dim, pairs;
  int has_norm, interleaved;
  float eps;
};

// Elementwise functions, one invocation an element; rows in y.
struct Gated {
  Floats gate, up, out_;
  int cols, gate_stride, up_stride, out_stride;
  int activation;  // of device.h
};

struct Softcap {
  Floats x;
  int cols, stride;
  float cap;
};

struct AddGatedRows {
  Floats x, gate, out_;
  int cols, x_stride, gate_stride, out_stride;
};

struct GatherRows {
  Floats x, out_;
  Ints rows;
  int cols, x_stride, out_stride;
};

// One workgroup a row and `span` of its elements: the `count` that come first, as pairs of column and bits of
// the value. Element e of a row is the value x[e] of column e, or pair e of `x` when they are pairs
// (is_pairs); a pair of column -1 is none.
struct Largest {
  Words x, out_;  // out_: [rows][spans][count][2]
  int elements, x_stride, span, count, is_pairs;
};

// A part of a weight: rows [first_row, first_row + rows) of the matrix, `row_words` words apart, in the
// format of specialization constant 1. Where there is an order, column c holds input order[c].
struct Embed {
  Words weight;
  Words tables;  // grids
  Floats scale;  // [1] or [rows of the part], by scale_kind
  Ints order, token_ids;
  Floats out_;
  int first_row, rows, cols, row_words, out_stride;
  int scale_kind;  // 0: none, 1: one, 2: one a row
  int has_order;
  float factor;
};

struct Matmul {
  Words weight;
  Words tables;
  Floats scale;
  Ints order;
  Floats x, bias, out_;
  Floats x_undo;    // [rows], of matmul_half and matmul_matrix, whose x is what halve.comp writes
  int rows;         // of x and out
  int weight_rows;  // of the part: columns of out
  int cols, row_words, x_stride, out_stride;
  int scale_kind, has_order, has_bias, accumulate;
};

// Activations for the *_dot kernels: out_ is their x, out_stride and their x_stride count blocks (dot.glsl).
struct Quantise {
  Floats x;
  Ints order;
  Quads out_;
  int cols, x_stride, out_stride;
  int has_order;
};

struct Halve {
  Floats x;
  Ints order;
  Words out_;   // [rows][pairs of columns]
  Floats undo;  // [rows]
  int cols, x_stride;
  int has_order;
};

struct WriteKv {
  Floats k, v;
  Words keys, values;
  Ints slots;  // [rows]: block id * block_size + slot in block
  int k_stride, v_stride, heads, head_dim, block_size;
};

// One workgroup a query head, row and group of splits. A split is kSplitKeys positions from a multiple of it.
struct Attention {
  Floats q, out_;
  Words keys, values;
  Ints positions, sequences, block_table;  // sequences: [rows], the row of block_table
  Floats partial;  // [rows][heads][splits][head_dim + 2]: sums, highest score, total weight
  int q_stride, out_stride, heads, group, head_dim, block_size, max_blocks;
  int window;
  int splits;  // places in partial of one row and head; 0: a workgroup takes all splits and writes out
  float scale, cap;
};

struct AttentionCombine {
  Floats partial, out_;
  Ints positions;
  int out_stride, heads, head_dim, splits, window;
};

struct CausalConv {
  Floats x, weight, history;  // history: of the layer, [slots] * slot_stride, [taps - 1][cols]
  Ints seq_start, positions, slots;
  int cols, x_stride, weight_stride;
  int slot_stride;
};

// One workgroup a row and head of q and k, and one more a row.
struct DeltaPrepare {
  Floats qkv, a, b, decay, dt_bias;
  int qkv_stride, a_stride, b_stride;
  int key_heads, value_heads, key_dim;
};

// One workgroup a sequence and some rows of S of one value head. Of each sequence the rows from `first_row`
// of it on are computed, at most kDeltaRows.
struct DeltaRule {
  Floats qkv, a, b, out_;
  Floats state;  // of the layer, [slots] * slot_stride, [value_heads][key_dim][value_dim]
  Ints seq_start, positions, slots;
  int qkv_stride, a_stride, b_stride, out_stride;
  int key_heads, value_heads, value_dim, tiled;
  int slot_stride, first_row;
};

// One workgroup a row. Choices of row t are ids[t * used ...], in rising order, and their weights.
struct Route {
  Floats logits, weights;
  Ints ids;
  int experts, used, stride, renormalise;
  float scale;
};

// One workgroup. A choice is a place of `ids`; those of an expert fill blocks of `size`, in rising order.
struct ExpertBlocks {
  Ints ids, blocks;  // blocks: [most_blocks][size] choices, -1: none
  int choices, experts, size, most_blocks;
};

// The products of rows with the matrices of their experts. `matrices` holds for each expert 10 words:
// addresses of weight, scale and order, then scale_kind, has_order, format and row_words.
struct ExpertMatmul {
  Words matrices, tables;
  Ints ids, blocks;  // blocks: what expert_blocks.comp writes, of ROWS choices; not read where that is 1
  Floats x, out_;
  int used;       // choices of a row
  int rows_of_x;  // 1: x has a row for each row, 0: for each row and choice
  int weight_rows, cols, x_stride, out_stride;
};

struct ExpertSum {
  Floats y, weights, out_;
  int cols, used, y_stride, out_stride, accumulate;
};
