#include "weights/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace vllm {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place as little-endian");

constexpr uint64_t kMaxKeys = 4096;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32;

using ull = unsigned long long;

/// Reads forward through a mapped file and never past its end.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file) {}

  const char* path() const { return file_.path().c_str(); }
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return file_.size() - offset_; }

  /// The next `bytes` bytes, which belong to `what`.
  const uint8_t* take(uint64_t bytes, const char* what) {
    if (bytes > left()) {
      fail_load("%s has %zu bytes and ends inside %s: at byte %llu %llu bytes are needed and %llu are left.",
                path(), file_.size(), what, ull{offset_}, ull{bytes}, ull{left()});
    }
    const uint8_t* at = file_.data() + offset_;
    offset_ += bytes;
    return at;
  }

  template <typename T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  std::string_view string(const char* what) {
    const uint64_t length = read<uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<size_t>(length)};
  }

  /// A count of things of at least `least_bytes` bytes each.
  uint64_t count(uint64_t least_bytes, const char* what) {
    const uint64_t value = read<uint64_t>(what);
    require_room(value, least_bytes, what);
    return value;
  }

  void require_room(uint64_t count, uint64_t least_bytes, const char* what) const {
    if (count > left() / least_bytes) {
      fail_load("%s has %zu bytes and names %llu for %s, more than the %llu bytes left can hold.", path(),
                file_.size(), ull{count}, what, ull{left()});
    }
  }

 private:
  const MappedFile& file_;
  uint64_t offset_ = 0;
};

/// Bytes of a value of a fixed size; 0 for strings, arrays and unknown types.
uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool:
      return 1;
    case GgufType::U16:
    case GgufType::I16:
      return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32:
      return 4;
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64:
      return 8;
    case GgufType::String:
    case GgufType::Array:
      break;
  }
  return 0;
}

/// Calls `use` with the number at `at` in its own C++ type; the type must have a fixed size.
template <typename Use>
auto with_number(GgufType type, const uint8_t* at, Use use) {
  const auto load = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case GgufType::U8:
      return use(load(uint8_t{}));
    case GgufType::I8:
      return use(load(int8_t{}));
    case GgufType::U16:
      return use(load(uint16_t{}));
    case GgufType::I16:
      return use(load(int16_t{}));
    case GgufType::U32:
      return use(load(uint32_t{}));
    case GgufType::I32:
      return use(load(int32_t{}));
    case GgufType::F32:
      return use(load(float{}));
    case GgufType::U64:
      return use(load(uint64_t{}));
    case GgufType::I64:
      return use(load(int64_t{}));
    case GgufType::F64:
      return use(load(double{}));
    default:
      return use(*at != 0);
  }
}

std::string_view string_at(const uint8_t* at) {
  uint64_t length;
  std::memcpy(&length, at, sizeof length);
  return {reinterpret_cast<const char*>(at + sizeof length), static_cast<size_t>(length)};
}

GgufType read_type(Reader& reader, const char* what) {
  const uint32_t type = reader.read<uint32_t>(what);
  if (type > static_cast<uint32_t>(GgufType::F64)) {
    fail_load("%s: %s has the value type %u, needed is one from 0 to 12.", reader.path(), what, type);
  }
  return static_cast<GgufType>(type);
}

GgufValue read_value(Reader& reader, const char* what) {
  GgufValue value;
  value.type = read_type(reader, what);
  if (value.type == GgufType::Array) {
    value.is_array = true;
    value.type = read_type(reader, what);
    if (value.type == GgufType::Array) {
      fail_load("%s: %s is an array of arrays, which is not supported.", reader.path(), what);
    }
    value.count = reader.read<uint64_t>(what);
  }
  if (const uint64_t size = fixed_size(value.type)) {
    reader.require_room(value.count, size, what);
    value.data = reader.take(value.count * size, what);
    if (value.type == GgufType::Bool && !value.is_array && *value.data > 1) {
      fail_load("%s: %s is a bool with the value %d, needed is 0 or 1.", reader.path(), what, *value.data);
    }
    return value;
  }
  reader.require_room(value.count, sizeof(uint64_t), what);
  value.data = reader.take(0, what);
  for (uint64_t i = 0; i < value.count; ++i) reader.string(what);
  return value;
}

/// Names of the tensor types that are known to exist and are none of ours.
std::string ggml_type_name(uint32_t type) {
  static constexpr struct {
    uint32_t id;
    const char* name;
  } kNames[] = {{9, "Q8_1"}, {15, "Q8_K"}, {24, "I8"}, {25, "I16"}, {26, "I32"}, {27, "I64"}, {28, "F64"}};
  for (const auto& entry : kNames) {
    if (entry.id == type) return entry.name;
  }
  return format("number %u", type);
}

void read_magic_and_version(Reader& reader) {
  const uint8_t* magic = reader.take(std::min<uint64_t>(4, reader.left()), "the magic");
  const std::string_view start(reinterpret_cast<const char*>(magic), reader.offset());
  if (start != "GGUF") {
    fail_load("%s is no GGUF file: it starts with %s, needed is 'GGUF'.", reader.path(),
              quote(start).c_str());
  }
  const uint32_t version = reader.read<uint32_t>("the version");
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0) {
    fail_load("%s is a big-endian GGUF file, needed is a little-endian one.", reader.path());
  }
  fail_load("%s has the GGUF version %u, needed is 2 or 3.", reader.path(), version);
}

uint64_t read_alignment(const GgufFile& out) {
  const char* path = out.file->path().c_str();
  const auto it = out.metadata.find("general.alignment");
  if (it == out.metadata.end()) return kDefaultAlignment;
  const GgufValue& value = it->second;
  const Json number = value.is_array ? Json() : to_json(value);
  const bool usable =
      number.is_number_integer() && number >= 8 && std::has_single_bit(number.get<uint64_t>());
  if (!usable) {
    const std::string found = value.is_array ? "an array" : dump_json(number).substr(0, 100);
    fail_load("%s: general.alignment is %s, needed is a power of two from 8.", path, found.c_str());
  }
  return number.get<uint64_t>();
}

/// A row of the tensor table; the place of the data is known only at the end of the table.
struct TensorInfo {
  Weight weight;
  uint64_t offset = 0;  // from the start of the data section
};

TensorInfo read_tensor_info(Reader& reader, const std::shared_ptr<MappedFile>& file) {
  TensorInfo info;
  Weight& weight = info.weight;
  weight.name = reader.string("a tensor name");
  weight.file = file;
  const std::string name = quote(weight.name);
  const uint32_t dims = reader.read<uint32_t>("the tensor table");
  if (dims < 1 || dims > kMaxDims) {
    fail_load("%s: tensor %s has %u dimensions, needed are 1 to %u.", reader.path(), name.c_str(), dims,
              kMaxDims);
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const uint64_t size = reader.read<uint64_t>("the tensor table");
    if (size == 0) fail_load("%s: tensor %s has a dimension of 0.", reader.path(), name.c_str());
    if (size > INT64_MAX || __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
      fail_load("%s: tensor %s has more elements than 64 bits can count.", reader.path(), name.c_str());
    }
    weight.shape.insert(weight.shape.begin(),
                        static_cast<int64_t>(size));  // the file has the innermost first
  }
  const uint32_t type = reader.read<uint32_t>("the tensor table");
  const FormatInfo* format = find_ggml_format(type);
  if (!format) {
    fail_load("%s: tensor %s has the type %s, supported are %s.", reader.path(), name.c_str(),
              ggml_type_name(type).c_str(), supported_formats().c_str());
  }
  weight.format = format->format;
  const int64_t cols = weight.shape.back();
  if (cols % format->block_size != 0) {
    fail_load("%s: tensor %s of type %s has rows of %lld elements, needed is a multiple of %d.",
              reader.path(), name.c_str(), format->name, static_cast<long long>(cols), format->block_size);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / format->block_size, int64_t{format->block_bytes}, &bytes)) {
    fail_load("%s: tensor %s has more bytes than 64 bits can count.", reader.path(), name.c_str());
  }
  weight.bytes = static_cast<size_t>(bytes);
  info.offset = reader.read<uint64_t>("the tensor table");
  return info;
}

void refuse_duplicate_tensors(const char* path, const std::vector<TensorInfo>& infos) {
  std::vector<std::string_view> names;
  for (const TensorInfo& info : infos) names.push_back(info.weight.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail_load("%s holds the tensor %s twice.", path, quote(*twice).c_str());
}

/// Checks where the tensors lie and points them at their bytes.
void place_tensors(GgufFile& out, std::vector<TensorInfo>& infos, uint64_t table_end, uint64_t alignment) {
  const char* path = out.file->path().c_str();
  const uint64_t size = out.file->size();
  // A power of two of up to 2^63 and a table inside the file: neither addition can wrap beyond 64 bits.
  const uint64_t data_start = (table_end + (alignment - 1)) & ~(alignment - 1);
  uint64_t needed = 0;
  for (const TensorInfo& info : infos) {
    uint64_t end;
    if (info.offset % alignment != 0) {
      fail_load(
          "%s: tensor %s starts at offset %llu of the data, needed is a multiple of the alignment %llu.",
          path, quote(info.weight.name).c_str(), ull{info.offset}, ull{alignment});
    }
    if (__builtin_add_overflow(info.offset, info.weight.bytes, &end) ||
        __builtin_add_overflow(end, data_start, &end)) {
      fail_load("%s: tensor %s has the offset %llu, which no file can have.", path,
                quote(info.weight.name).c_str(), ull{info.offset});
    }
    needed = std::max(needed, end);
  }
  if (needed > size) {
    fail_load("%s has %llu bytes, its tensor table needs %llu.", path, ull{size}, ull{needed});
  }
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& info : infos) sorted.push_back(&info);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->offset + sorted[i - 1]->weight.bytes > sorted[i]->offset) {
      fail_load("%s: the tensors %s and %s overlap.", path, quote(sorted[i - 1]->weight.name).c_str(),
                quote(sorted[i]->weight.name).c_str());
    }
  }
  for (TensorInfo& info : infos) {
    info.weight.data = out.file->data() + data_start + info.offset;
    out.tensors.push_back(std::move(info.weight));
  }
}

}  // namespace

Json to_json(const GgufValue& value) {
  if (value.type == GgufType::String) return std::string(string_at(value.data));
  const uint64_t size = fixed_size(value.type);
  const auto element = [&](uint64_t i) {
    return with_number(value.type, value.data + i * size, [](auto number) { return Json(number); });
  };
  if (!value.is_array) return element(0);
  Json::array_t items;
  items.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) items.push_back(element(i));
  return items;
}

std::vector<std::string_view> strings_of(const GgufValue& value) {
  std::vector<std::string_view> out;
  out.reserve(value.count);
  const uint8_t* at = value.data;
  for (uint64_t i = 0; i < value.count; ++i) {
    out.push_back(string_at(at));
    at += sizeof(uint64_t) + out.back().size();
  }
  return out;
}

std::vector<float> floats_of(const GgufValue& value) {
  std::vector<float> out;
  out.reserve(value.count);
  const uint64_t size = fixed_size(value.type);
  for (uint64_t i = 0; i < value.count; ++i) {
    out.push_back(
        with_number(value.type, value.data + i * size, [](auto x) { return static_cast<float>(x); }));
  }
  return out;
}

std::optional<std::vector<int32_t>> ints_of(const GgufValue& value) {
  std::vector<int32_t> out;
  out.reserve(value.count);
  const uint64_t size = fixed_size(value.type);
  for (uint64_t i = 0; i < value.count; ++i) {
    const bool fits = with_number(value.type, value.data + i * size, [&out](auto x) {
      if constexpr (std::is_same_v<decltype(x), bool>) {
        out.push_back(x);
        return true;
      } else if constexpr (std::is_integral_v<decltype(x)>) {
        out.push_back(static_cast<int32_t>(x));
        return std::in_range<int32_t>(x);
      } else {
        return false;
      }
    });
    if (!fits) return std::nullopt;
  }
  return out;
}

GgufFile parse_gguf(std::shared_ptr<MappedFile> file) {
  GgufFile out;
  out.file = std::move(file);
  Reader reader(*out.file);
  read_magic_and_version(reader);
  // The least a tensor needs: name length, number of dimensions, one dimension, type, offset. A key: length,
  // type, value.
  const uint64_t tensor_count = reader.count(8 + 4 + 8 + 4 + 8, "the number of tensors");
  const uint64_t key_count = reader.count(8 + 4 + 1, "the number of metadata keys");
  if (key_count > kMaxKeys) {
    fail_load("%s has %llu metadata keys, allowed are %llu.", reader.path(), ull{key_count}, ull{kMaxKeys});
  }
  for (uint64_t i = 0; i < key_count; ++i) {
    const std::string key(reader.string("a metadata key"));
    const GgufValue value = read_value(reader, ("the value of " + quote(key)).c_str());
    if (!out.metadata.emplace(key, value).second) {
      fail_load("%s holds the metadata key %s twice.", reader.path(), quote(key).c_str());
    }
  }
  const uint64_t alignment = read_alignment(out);
  std::vector<TensorInfo> infos;
  for (uint64_t i = 0; i < tensor_count; ++i) infos.push_back(read_tensor_info(reader, out.file));
  refuse_duplicate_tensors(reader.path(), infos);
  place_tensors(out, infos, reader.offset(), alignment);
  return out;
}

}  // namespace vllm
