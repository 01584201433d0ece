// The tree of a template: made by the parser, its names bound to slots by the scopes pass, then never
// changed.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/jinja/value.h"

namespace vllm::jinja {

struct FilterInfo;
struct TestInfo;

enum class NodeType : uint8_t {
  // Expressions.
  Constant,      // constant
  Name,          // text, place
  List,          // items
  Tuple,         // items
  Dict,          // items: key, value, key, value, ...
  Not,           // a
  Negate,        // a
  Positive,      // a
  Binary,        // a, b, op (BinaryOp)
  And,           // a, b
  Or,            // a, b
  Compare,       // a, then items with ops (CompareOp)
  Concat,        // items
  Conditional,   // a if b else c (null: undefined)
  Attribute,     // a.text
  Subscript,     // a[b]
  Slice,         // a, b, c: bounds and step, each may be null
  Call,          // a, arguments
  Filter,        // a (null: the text of a block), text, arguments
  Test,          // a, text, arguments
  NamespaceRef,  // target text of namespace a (a Name)
  // Statements.
  Text,         // text
  Print,        // a
  If,           // a, body; items: more If without items; else_body
  For,          // loop, body, else_body
  Set,          // a = b
  SetBlock,     // a, b: filter or null, body
  Macro,        // text, macro, body; a: Name of the target
  CallBlock,    // a: the Call, macro, body
  FilterBlock,  // a: the Filter, body
  With,         // items: targets, arguments->positional: values, body
  Scope,        // body
  Break,
  Continue,
};

struct Node;

struct Arguments {
  std::vector<Node*> positional;
  std::vector<std::pair<std::string, Node*>> named;
  Node* star = nullptr;
  Node* star_star = nullptr;
};

/// A variable: slot `slot` of the activation `hops` functions further out.
struct Place {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

/// How a slot gets its value when its scope is entered.
struct Load {
  enum class How : uint8_t { Resolve, Alias, Unset } how;
  uint32_t slot;
  Place from;             // Alias
  std::string_view name;  // Resolve: in the variables of the request, then among the globals
};
using Frame = std::vector<Load>;

struct LoopParts {
  Node* target = nullptr;
  Node* iterable = nullptr;
  Node* test_target = nullptr;  // the target in the scope of the test
  Node* test = nullptr;
  bool recursive = false;
  bool uses_loop = false;
  uint32_t loop_slot = 0;
  uint32_t num_slots = 0;  // of its own function, when recursive
  Frame test_frame;
  Frame else_frame;
};

struct MacroParts {
  std::vector<Node*> parameters;  // Name
  std::vector<Node*> defaults;    // of the last parameters
  uint32_t num_slots = 0;
  bool explicit_caller = false;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  uint32_t caller_slot = 0;
  uint32_t kwargs_slot = 0;
  uint32_t varargs_slot = 0;
};

enum class NameUse : uint8_t { Load, Store, Parameter };

struct Node {
  NodeType type;
  uint8_t op = 0;
  NameUse use = NameUse::Load;
  uint32_t offset = 0;  // in the source
  uint32_t height = 1;  // of the tree below
  Place place;
  Value constant;
  Node* a = nullptr;
  Node* b = nullptr;
  Node* c = nullptr;
  std::string text;
  std::vector<Node*> items;
  std::vector<uint8_t> ops;
  std::vector<Node*> body;
  std::vector<Node*> else_body;
  Frame frame;  // of the body
  Arguments* arguments = nullptr;
  LoopParts* loop = nullptr;
  MacroParts* macro = nullptr;
  const FilterInfo* filter = nullptr;  // null: unknown
  const TestInfo* test = nullptr;      // null: unknown
  UndefinedInfo undefined{};           // of a Name
};

struct Tree {
  std::deque<Node> nodes;
  std::deque<Arguments> arguments;
  std::deque<LoopParts> loops;
  std::deque<MacroParts> macros;
  std::vector<Node*> body;
  Frame frame;
  uint32_t num_slots = 0;
};

struct Activation {
  Value* slots;
  Activation* outer;
};

}  // namespace vllm::jinja
