// vllm.h against abi_layout.json, as a C++ compiler sees it. abi_layout.inc is generated from the JSON.
#include <doctest/doctest.h>

#include <cstddef>
#include <type_traits>

#include "vllm.h"
#include "vllm_ext.h"

// What a struct has is at its offset and of its type; and it has nothing else, or the structured binding
// would not compile.
#define ABI_VERSION(number)
#define ABI_HANDLE(name)
#define ABI_CALLBACK(name, returns, params) static_assert(std::is_same_v<name, returns(*) params>);
#define ABI_ENUM(type, name, value) static_assert(std::is_same_v<decltype(name), type>);
#define ABI_STRUCT(name, size, align, ...)                                   \
  static_assert(std::is_standard_layout_v<name> && std::is_trivial_v<name>); \
  [[maybe_unused]] static void has_no_more_than(name& value) { [[maybe_unused]] auto& [__VA_ARGS__] = value; }
#define ABI_FIELD(record, name, type, offset, size) \
  static_assert(std::is_same_v<decltype(record::name), type>);
#define ABI_FUNCTION(name, returns, params) static_assert(std::is_same_v<decltype(name), returns params>);
#include "abi_layout.inc"
#undef ABI_VERSION
#undef ABI_HANDLE
#undef ABI_CALLBACK
#undef ABI_ENUM
#undef ABI_STRUCT
#undef ABI_FIELD
#undef ABI_FUNCTION

namespace {

template <typename T>
concept Complete = requires { sizeof(T); };

}  // namespace

TEST_CASE("vllm.h has the layout of version 21") {
  int versions = 0, handles = 0, enumerators = 0, structs = 0, fields = 0;
#define ABI_VERSION(number)          \
  ++versions;                        \
  CHECK(VLLM_ABI_VERSION == number); \
  CHECK(vllm_abi_version() == number);
#define ABI_HANDLE(name) \
  ++handles;             \
  CHECK_FALSE(Complete<name>);
#define ABI_CALLBACK(name, returns, params) CHECK(sizeof(name) == sizeof(void*));
#define ABI_ENUM(type, name, value) \
  ++enumerators;                    \
  CHECK(sizeof(type) == 4);         \
  CHECK(static_cast<int>(name) == value);
#define ABI_STRUCT(name, size, align, ...) \
  ++structs;                               \
  {                                        \
    INFO(#name);                           \
    CHECK(sizeof(name) == size);           \
    CHECK(alignof(name) == align);         \
  }
#define ABI_FIELD(record, name, type, offset, size) \
  ++fields;                                         \
  {                                                 \
    INFO(#record "." #name);                        \
    CHECK(offsetof(record, name) == offset);        \
    CHECK(sizeof(record::name) == size);            \
  }
#define ABI_FUNCTION(name, returns, params)
#include "abi_layout.inc"
  CHECK(versions == 1);
  CHECK(handles == 4);
  CHECK(enumerators == 5);
  CHECK(structs == 13);
  CHECK(fields == 126);
}
