#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "allocation_meter.h"
#include "checkpoint_check.h"
#include "file_writers.h"
#include "weights/checkpoint.h"

using namespace vllm;
using namespace vllm::test;

namespace {

std::string error_of(std::string_view content, const std::string& name = "m.gguf") {
  const TempDir dir;
  const std::string path = dir.write(name, content);
  const std::string message = load_error([&] { use_everything(*Checkpoint::open(path)); });
  if (!message.empty()) CHECK(contains(message, path));
  return message;
}

std::string error_of(const GgufWriter& writer) { return error_of(writer.file()); }

/// The small model with one more metadata value.
GgufWriter with_value(uint32_t type, std::string_view value, std::string_view key = "x.key") {
  GgufWriter out = small_gguf();
  out.add(key, type, value);
  return out;
}

GgufWriter with_tensor(GgufTensor tensor) {
  GgufWriter out = small_gguf();
  out.tensors.push_back(std::move(tensor));
  return out;
}

}  // namespace

TEST_CASE("LOAD-10 a file of gguf-py is read as gguf-py reads it") {
  const std::string path = FIXTURES "/weights/tiny.gguf";
  const auto model = Checkpoint::open(path);
  CHECK(model->is_gguf());
  CHECK(model->path() == path);
  check_tensors(*model, "gguf");
  const Json& config = model->config();
  CHECK(config.at("general.architecture") == "llama");
  CHECK(config.at("general.name") == "tiny é");
  CHECK(config.at("t.u8") == 200);
  CHECK(config.at("t.i8") == -100);
  CHECK(config.at("t.u16") == 60000);
  CHECK(config.at("t.i16") == -30000);
  CHECK(config.at("t.u32") == 4000000000u);
  CHECK(config.at("t.i32") == -2000000000);
  CHECK(config.at("t.f32") == 0.15625);
  CHECK(config.at("t.true") == true);
  CHECK(config.at("t.false") == false);
  CHECK(config.at("t.u64") == (uint64_t{1} << 63) + 1);
  CHECK(config.at("t.i64") == -(int64_t{1} << 62));
  CHECK(config.at("t.f64") == 0.1);
  CHECK(config.at("t.ints") == Json({3, -1, 2}));
  CHECK(config.at("t.floats") == Json({0.5, -2.25}));
  CHECK(!config.contains("t.strings"));
  CHECK(model->string_array("t.strings") == std::vector<std::string_view>{"", "<s>", "▁the", "\n"});
  CHECK(model->int_array("t.ints") == std::vector<int32_t>{3, -1, 2});
  CHECK(model->float_array("t.ints") == std::vector<float>{3, -1, 2});
  CHECK(model->float_array("t.floats") == std::vector<float>{0.5f, -2.25f});
  CHECK(model->string_array("t.none").empty());
  CHECK(model->int_array("t.none").empty());
  CHECK(model->float_array("t.none").empty());
  CHECK(model->find("none") == nullptr);

  const WeightView experts = model->find("experts.q8_0")->view();  // [2, 3, 64]
  CHECK(experts.rows == 6);
  CHECK(experts.cols == 64);
  const WeightView norm = model->find("norm.weight")->view();
  CHECK(norm.rows == 1);
  CHECK(norm.cols == 32);
}

TEST_CASE("an array of another type than asked for is refused by key") {
  const auto model = Checkpoint::open(FIXTURES "/weights/tiny.gguf");
  CHECK(contains(load_error([&] { model->string_array("t.ints"); }), "'t.ints' is of another type"));
  CHECK(contains(load_error([&] { model->int_array("t.strings"); }), "'t.strings' is of another type"));
  CHECK(contains(load_error([&] { model->float_array("t.u8"); }), "'t.u8' is of another type"));
  CHECK(contains(load_error([&] { model->int_array("t.floats"); }),
                 "'t.floats' must hold integers of 32 bits"));
  const TempDir dir;
  const auto large = Checkpoint::open(dir.write(
      "m.gguf", with_value(9, raw<uint32_t>(10) + raw<uint64_t>(1) + raw<uint64_t>(1ull << 31)).file()));
  CHECK(contains(load_error([&] { large->int_array("x.key"); }), "'x.key' must hold integers of 32 bits"));
}

TEST_CASE("config leaves out long arrays, the array calls give them") {
  const TempDir dir;
  for (const uint64_t count : {4096, 4097}) {
    const std::string array = raw<uint32_t>(0) + raw<uint64_t>(count) + std::string(count, '\x05');
    const auto model = Checkpoint::open(dir.write("m.gguf", with_value(9, array).file()));
    CHECK(model->config().contains("x.key") == (count == 4096));
    CHECK(model->int_array("x.key") == std::vector<int32_t>(count, 5));
  }
}

TEST_CASE("LOAD-11 the summary and the fingerprint tell models apart") {
  const TempDir dir;
  const auto open = [&](const GgufWriter& writer) {
    return Checkpoint::open(dir.write("m.gguf", writer.file()));
  };
  const GgufWriter base = small_gguf();
  CHECK(open(base)->format_summary() == "Q8_0 0.0 MB, F32 0.0 MB, F16 0.0 MB");
  const std::string print = open(base)->fingerprint();
  CHECK(print.size() == 16);
  CHECK(print.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(open(base)->fingerprint() == print);
  GgufWriter renamed = base, reshaped = base, retyped = base;
  renamed.tensors[0].name = "d.weight";
  reshaped.tensors[0].dims = {3, 5};
  retyped.tensors[2].type = 30;
  for (const GgufWriter& other : {renamed, reshaped, retyped}) CHECK(open(other)->fingerprint() != print);
}

TEST_CASE("version 2 is read; versions 1, 4 and big-endian files are refused") {
  GgufWriter writer = small_gguf();
  writer.version = 2;
  CHECK(error_of(writer).empty());
  for (const uint32_t version : {0u, 1u, 4u, 0x10003u}) {
    writer.version = version;
    CHECK(contains(error_of(writer),
                   "has the GGUF version " + std::to_string(version) + ", needed is 2 or 3."));
  }
  for (const uint32_t version : {0x02000000u, 0x03000000u}) {
    writer.version = version;
    CHECK(contains(error_of(writer), "is a big-endian GGUF file, needed is a little-endian one."));
  }
}

TEST_CASE("LOAD-05 what is no GGUF file is refused at once") {
  CHECK(contains(error_of("Hello, I am a text.\n"),
                 "is no GGUF file: it starts with 'Hell', needed is 'GGUF'."));
  CHECK(contains(error_of("GG"), "is no GGUF file: it starts with 'GG'"));
  CHECK(contains(error_of(""), "is empty."));
  CHECK(contains(error_of("\x01\x02\xff\n-"), "it starts with '\\x01\\x02\\xff\\x0a'"));
  CHECK(contains(load_error([] { Checkpoint::open("/nowhere/at/all"); }),
                 "/nowhere/at/all cannot be opened: No such file"));
  CHECK(load_error([] { Checkpoint::open(""); }) == "The model path is empty.");
  GgufWriter empty = small_gguf();
  empty.tensors.clear();
  CHECK(contains(error_of(empty), "holds no tensors"));
}

TEST_CASE("FILE-01 alignment is a power of two from 8") {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 48u, 33u}) {
    CHECK(
        contains(error_of(with_value(4, raw(alignment), "general.alignment")),
                 "general.alignment is " + std::to_string(alignment) + ", needed is a power of two from 8."));
  }
  CHECK(contains(error_of(with_value(8, gguf_string("32"), "general.alignment")),
                 "general.alignment is \"32\""));
  CHECK(
      contains(error_of(with_value(5, raw<int32_t>(-32), "general.alignment")), "general.alignment is -32"));
  CHECK(contains(error_of(with_value(6, raw(32.0f), "general.alignment")), "general.alignment is 32.0"));
  CHECK(contains(error_of(with_value(9, raw<uint32_t>(4) + raw<uint64_t>(1) + raw(32u), "general.alignment")),
                 "general.alignment is an array"));
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer = with_value(4, raw(alignment), "general.alignment");
    writer.alignment = alignment;
    CHECK(error_of(writer).empty());
  }
  for (const int shift : {20, 62, 63}) {
    CHECK(contains(error_of(with_value(10, raw(uint64_t{1} << shift), "general.alignment")), "m.gguf"));
  }
}

TEST_CASE("FILE-02 dimensions that overflow, are none, zero or too many are refused by tensor") {
  const uint64_t big = uint64_t{1} << 32;
  CHECK(contains(error_of(with_tensor({"t", {big, big}, 0, 32, {}})),
                 "tensor 't' has more elements than 64 bits"));
  CHECK(contains(error_of(with_tensor({"t", {big, big, big, big}, 0, 32, {}})),
                 "tensor 't' has more elements"));
  CHECK(contains(error_of(with_tensor({"t", {UINT64_MAX}, 0, 32, {}})), "tensor 't' has more elements"));
  CHECK(contains(error_of(with_tensor({"t", {uint64_t{1} << 62}, 0, 32, {}})),
                 "tensor 't' has more bytes than 64 bits"));
  CHECK(contains(error_of(with_tensor({"t", {1, 1, 1, 1, 1}, 0, 32, {}})),
                 "tensor 't' has 5 dimensions, needed are 1 to 4."));
  CHECK(contains(error_of(with_tensor({"t", {}, 0, 32, {}})), "tensor 't' has 0 dimensions"));
  CHECK(contains(error_of(with_tensor({"t", {4, 0}, 0, 32, {}})), "tensor 't' has a dimension of 0."));
  CHECK(error_of(with_tensor({"t", {2, 1, 2, 2}, 0, 32, {}})).empty());
}

TEST_CASE("FILE-03 counts and lengths beyond the file are refused before any memory is taken") {
  std::vector<std::string> bad;
  for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 32, uint64_t{1} << 60, UINT64_MAX}) {
    GgufWriter keys = small_gguf(), tensors = small_gguf();
    keys.key_count = count;
    tensors.tensor_count = count;
    bad.push_back(keys.file());
    bad.push_back(tensors.file());
    bad.push_back(with_value(8, raw(count)).header());                      // string
    bad.push_back(with_value(9, raw<uint32_t>(8) + raw(count)).header());   // array of strings
    bad.push_back(with_value(9, raw<uint32_t>(0) + raw(count)).header());   // of bytes
    bad.push_back(with_value(9, raw<uint32_t>(12) + raw(count)).header());  // of doubles
    bad.push_back(
        with_value(9, raw<uint32_t>(8) + raw<uint64_t>(1) + raw(count)).header());  // a string inside
    GgufWriter key = small_gguf();
    key.keys.push_back(raw(count) + "abc");
    bad.push_back(key.header());
    GgufWriter name = small_gguf();
    name.tail = raw(count) + "abc";
    name.tensor_count = 4;
    bad.push_back(name.header());
  }
  const TempDir dir;
  for (const std::string& content : bad) {
    const std::string path = dir.write("m.gguf", content);
    std::string message;
    const size_t grown = peak_growth([&] { message = load_error([&] { Checkpoint::open(path); }); });
    CHECK(contains(message, path + " has " + std::to_string(content.size()) + " bytes"));
    CHECK(grown < 64 * 1024);
  }
}

TEST_CASE("FILE-03 the number of metadata keys is bounded") {
  GgufWriter writer = small_gguf();
  for (int i = 0; i < 5000; ++i) writer.add_u32("k" + std::to_string(i), 1);
  CHECK(contains(error_of(writer), "has 5004 metadata keys, allowed are 4096."));
}

TEST_CASE("FILE-05 every shorter file is refused") {
  const std::string whole = small_gguf().file();
  const size_t header = small_gguf().header().size();
  const TempDir dir;
  CHECK(error_of(whole).empty());
  CHECK(error_of(whole + "more").empty());
  CHECK(contains(error_of(whole.substr(0, whole.size() - 1)), "has " + std::to_string(whole.size() - 1) +
                                                                  " bytes, its tensor table needs " +
                                                                  std::to_string(whole.size()) + "."));
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string path = dir.write("m.gguf", std::string_view(whole).substr(0, size));
    const std::string message = load_error([&] { Checkpoint::open(path); });
    CAPTURE(size);
    if (size < 4) {
      CHECK(contains(message, path + " is no GGUF file"));
    } else {
      CHECK(contains(message, path + " has " + std::to_string(size) + " bytes and ") == (size < header));
      CHECK(contains(message, path + " has " + std::to_string(size) + " bytes, ") == (size >= header));
    }
  }
}

TEST_CASE("FILE-09 an unsupported tensor type is refused with tensor, type and the supported ones") {
  const auto message = [](uint32_t type) {
    return error_of(with_tensor({"blk.0.ffn", {256}, type, 256, {}}));
  };
  CHECK(contains(message(9),
                 "tensor 'blk.0.ffn' has the type Q8_1, supported are F32, F16, BF16, Q4_0, Q4_1, "
                 "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4, NVFP4, Q2_K, Q3_K, IQ4_XS, "
                 "TQ1_0, TQ2_0, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M, Q1_0."));
  CHECK(contains(message(15), "has the type Q8_K,"));
  CHECK(contains(message(4), "has the type number 4,"));
  CHECK(contains(message(UINT32_MAX), "has the type number 4294967295,"));
}

TEST_CASE("a row that is no whole number of blocks is refused") {
  CHECK(contains(error_of(with_tensor({"t", {576, 2}, 12, 512, {}})),
                 "tensor 't' of type Q4_K has rows of 576 elements, needed is a multiple of 256."));
  CHECK(contains(error_of(with_tensor({"t", {16, 2}, 8, 34, {}})), "needed is a multiple of 32."));
}

TEST_CASE("tensors that are misplaced, overlap or come twice are refused by name") {
  CHECK(contains(error_of(with_tensor({"t", {8}, 0, 32, 8})), "tensor 't' starts at offset 8 of the data"));
  CHECK(contains(error_of(with_tensor({"t", {8}, 0, 32, 32})), "the tensors 'a.weight' and 't' overlap."));
  CHECK(contains(error_of(with_tensor({"t", {8}, 0, 32, 0})), "overlap."));
  CHECK(contains(error_of(with_tensor({"t", {8}, 0, 32, uint64_t{1} << 40})), "its tensor table needs"));
  CHECK(contains(error_of(with_tensor({"t", {8}, 0, 32, UINT64_MAX - 31})), "tensor 't' has the offset"));
  CHECK(contains(error_of(with_tensor({"b.weight", {8}, 0, 32, {}})), "holds the tensor 'b.weight' twice."));
  CHECK(contains(error_of(with_tensor({"evil\n\xff", {8}, 0, 32, 8})), "tensor 'evil\\x0a\\xff' starts"));
}

TEST_CASE("the scale of a weight in a tensor of its own becomes a part of it") {
  // An F32 of which byte i of the file's data is i % 251: tensors begin at multiples of 32.
  const auto byte_floats = [](uint8_t at) {
    const uint8_t bytes[] = {at, static_cast<uint8_t>(at + 1), static_cast<uint8_t>(at + 2),
                             static_cast<uint8_t>(at + 3)};
    float out;
    std::memcpy(&out, bytes, sizeof out);
    return out;
  };
  GgufWriter writer = small_gguf();  // 60, 136 and 14 bytes: the next begins at 256
  writer.tensors.push_back({"a.scale", {1}, 0, 4, {}});
  writer.tensors.push_back({"a.input_scale", {1}, 0, 4, {}});
  writer.tensors.push_back({"stack.weight", {4, 3, 2}, 0, 96, {}});
  writer.tensors.push_back({"stack.scale", {2}, 0, 8, {}});
  writer.tensors.push_back({"alone.scale", {9}, 0, 36, {}});
  const TempDir dir;
  const auto checkpoint = Checkpoint::open(dir.write("model.gguf", writer.file()));
  CHECK(checkpoint->find("a.scale") == nullptr);
  CHECK(checkpoint->find("a.input_scale") == nullptr);
  CHECK(checkpoint->find("alone.scale") != nullptr);
  CHECK(contains(checkpoint->format_summary(), "; quantised inputs run weight-only (1 weights)"));
  CHECK(*checkpoint->find("a.weight")->scale == std::vector<float>{byte_floats(256 - 251)});
  const float one = byte_floats(416 - 251), two = byte_floats(420 - 251);
  CHECK(*checkpoint->find("stack.weight")->scale == std::vector<float>{one, one, one, two, two, two});
  CHECK(checkpoint->find("b.weight")->scale == nullptr);

  CHECK(contains(error_of(with_tensor({"a.scale", {2}, 0, 8, {}})),
                 "the tensor 'a.scale' is 1 x 2 of F32, needed is 1 of F32, the factor of 'a.weight'"));
  CHECK(contains(error_of(with_tensor({"a.scale", {1}, 1, 2, {}})), "is 1 x 1 of F16, needed is 1 of F32"));
  GgufWriter few = with_tensor({"s.weight", {4, 3, 2}, 0, 96, {}});
  few.tensors.push_back({"s.scale", {3}, 0, 12, {}});
  CHECK(contains(error_of(few), "needed is 2 of F32, the factor of each matrix of 's.weight'"));
  std::string broken = with_tensor({"a.scale", {1}, 0, 4, {}}).file();
  const float nan = NAN;
  broken.replace(broken.size() - 4, 4, raw(nan));
  CHECK(contains(error_of(broken), "the tensor 'a.scale' holds nan, needed are finite numbers"));
}

TEST_CASE("metadata that is malformed is refused by key") {
  CHECK(contains(error_of(with_value(13, "1234")), "the value of 'x.key' has the value type 13"));
  CHECK(contains(error_of(with_value(9, raw<uint32_t>(99) + raw<uint64_t>(0))),
                 "'x.key' has the value type 99"));
  CHECK(contains(
      error_of(with_value(9, raw<uint32_t>(9) + raw<uint64_t>(1) + raw<uint32_t>(0) + raw<uint64_t>(0))),
      "the value of 'x.key' is an array of arrays"));
  CHECK(contains(error_of(with_value(7, "\x02")), "the value of 'x.key' is a bool with the value 2"));
  CHECK(contains(error_of(with_value(4, raw(1u), "llama.block_count")),
                 "holds the metadata key 'llama.block_count' twice."));
  CHECK(error_of(with_value(9, raw<uint32_t>(8) + raw<uint64_t>(0))).empty());
}

TEST_CASE("FILE-12 a split model loads from any of its parts") {
  const auto whole = Checkpoint::open(FIXTURES "/weights/tiny.gguf");
  for (const char* part : {"1", "2", "3"}) {
    const auto model =
        Checkpoint::open(FIXTURES "/weights/tiny_split-0000" + std::string(part) + "-of-00003.gguf");
    check_tensors(*model, "gguf");
    CHECK(model->config().at("general.name") == "tiny é");
    CHECK(model->string_array("t.strings") == whole->string_array("t.strings"));
  }
}

namespace {

/// A folder with a model of three parts of one tensor each.
struct SplitModel {
  SplitModel() {
    for (int i = 0; i < 3; ++i) {
      parts[i].add("split.no", 2, raw<uint16_t>(i));
      parts[i].add("split.count", 2, raw<uint16_t>(3));
      parts[i].add("split.tensors.count", 5, raw<int32_t>(3));
      parts[i].tensors = {{"t" + std::to_string(i), {8}, 0, 32, {}}};
    }
  }
  std::string name(int i) const { return "m-0000" + std::to_string(i + 1) + "-of-00003.gguf"; }
  std::string error(int opened = 0, int left_out = -1) const {
    const TempDir dir;
    for (int i = 0; i < 3; ++i) {
      if (i != left_out) dir.write(name(i), parts[i].file());
    }
    return load_error([&] { use_everything(*Checkpoint::open(dir.path + "/" + name(opened))); });
  }
  GgufWriter parts[3];
};

}  // namespace

TEST_CASE("FILE-12 a split model with a missing or foreign part is refused by name") {
  CHECK(SplitModel().error(0).empty());
  CHECK(SplitModel().error(2).empty());
  CHECK(contains(SplitModel().error(0, 1),
                 "/m-00002-of-00003.gguf, part 2 of 3 of the split model, is missing."));
  CHECK(contains(SplitModel().error(1, 0),
                 "/m-00001-of-00003.gguf, part 1 of 3 of the split model, is missing."));
  SplitModel swapped;
  std::swap(swapped.parts[1], swapped.parts[2]);
  CHECK(contains(swapped.error(), "m-00002-of-00003.gguf says it is part 3 of 3"));
  SplitModel twice;
  twice.parts[2].tensors[0].name = "t0";
  CHECK(contains(twice.error(), "m-00003-of-00003.gguf: the tensor 't0' is in an earlier part"));
  SplitModel fewer;
  fewer.parts[2].tensors.clear();
  CHECK(contains(fewer.error(), "hold 2 tensors, needed are 3 (split.tensors.count)."));
  SplitModel broken;
  broken.parts[1].version = 9;
  CHECK(contains(broken.error(), "m-00002-of-00003.gguf has the GGUF version 9"));
  SplitModel negative;
  negative.parts[0].keys[1] = gguf_string("split.count") + raw<uint32_t>(5) + raw<int32_t>(-3);
  CHECK(contains(negative.error(), "split.count is -3, needed is an integer from 0."));

  const TempDir dir;
  const SplitModel model;
  for (const char* name :
       {"renamed.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-0000a-of-00003.gguf"}) {
    CHECK(contains(load_error([&] { Checkpoint::open(dir.write(name, model.parts[0].file())); }),
                   "is one of 3 parts of a split model, its name must end in its number, as in "
                   "'model-00001-of-00003.gguf'."));
  }
}

TEST_CASE("FILE-12 one part of one is a normal file") {
  GgufWriter writer = small_gguf();
  CHECK(error_of(writer.file(), "m-00001-of-00001.gguf").empty());
  writer.add("split.count", 2, raw<uint16_t>(1));
  writer.add("split.no", 2, raw<uint16_t>(0));
  CHECK(error_of(writer.file(), "m-00001-of-00001.gguf").empty());
  CHECK(error_of(writer.file(), "other.gguf").empty());
}

TEST_CASE("FILE-03 damaged files load or are refused, within bounded memory") {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string whole = small_gguf().file();
  const size_t header = small_gguf().header().size();
  const TempDir dir;
  int loaded = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string content = whole;
    switch (below(4)) {
      case 0:  // damaged bytes
        for (size_t i = below(6) + 1; i > 0; --i) content[below(header)] = static_cast<char>(random());
        break;
      case 1: {  // an extreme number
        const uint64_t extremes[] = {
            0, 1, 2, UINT64_MAX, INT64_MAX, uint64_t{1} << 32, uint64_t{1} << 60, content.size()};
        const uint64_t value = extremes[below(8)];
        const size_t bytes = below(2) ? 8 : 4;
        std::memcpy(content.data() + below(header - bytes), &value, bytes);
        break;
      }
      case 2:  // cut off or cut out
        content.erase(below(content.size() - 1) + 1, below(2) ? std::string::npos : below(16));
        break;
      default:  // a small number changed
        content[below(header)] += static_cast<char>(below(2) ? 1 : -1);
    }
    const std::string path = dir.write("m.gguf", content);
    CAPTURE(round);
    const size_t grown = peak_growth([&] {
      const std::string message = load_error([&] {
        const auto model = Checkpoint::open(path);
        use_everything(*model);
        for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}) {
          try {
            model->string_array(key);
            model->int_array(key);
          } catch (const Error&) {
          }
        }
      });
      ++(message.empty() ? loaded : refused);
    });
    REQUIRE(grown < 64 * 1024);
  }
  CHECK(loaded > 500);
  CHECK(refused > 500);
}
