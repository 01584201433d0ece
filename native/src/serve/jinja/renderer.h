// Walks a tree with the variables of one request.
#pragma once
#include <string>

#include "serve/jinja/ast.h"
#include "serve/jinja/call.h"
#include "serve/jinja/loop.h"
#include "serve/jinja/runtime.h"

namespace vllm::jinja {

class Renderer {
 public:
  Renderer(const std::string& source, const Tree& tree, std::optional<std::tm> now);

  std::string run(const Json& variables);

 private:
  enum class Flow : uint8_t { Normal, Break, Continue };
  class Condition;

  /// Collects what is written while it lives.
  class Capture {
   public:
    explicit Capture(Renderer& renderer) : renderer_(renderer), outer_(renderer.out_) {
      renderer.out_ = &text_;
    }
    ~Capture() { renderer_.out_ = outer_; }
    Value take() { return renderer_.rt_.copy_text(text_); }

   private:
    Renderer& renderer_;
    std::string* outer_;
    std::string text_;
  };

  static Value& slot_at(Activation& frame, const Place& place);
  Activation* make_activation(uint32_t num_slots, Activation* outer);

  Flow execute(const std::vector<Node*>& nodes, Activation& frame);
  Flow execute_node(const Node& node, Activation& frame);
  Flow execute_if(const Node& node, Activation& frame);
  Flow execute_set_block(const Node& node, Activation& frame);
  Flow execute_filter_block(const Node& node, Activation& frame);
  Flow execute_with(const Node& node, Activation& frame);
  Flow run_loop(const Node& node, const Value& iterable, Activation& frame, int64_t depth0);
  void run_recursive(const Node& node, const Value& iterable, Activation* outer, int64_t depth0);
  void enter(const Frame& loads, Activation& frame);
  void assign(const Node& target, const Value& value, Activation& frame);
  void set_attribute(Value& target, std::string_view name, const Value& value);
  void write(std::string_view text);
  void write(const Value& value);

  Value evaluate(const Node& node, Activation& frame);
  Value evaluate_name(const Node& node, Activation& frame);
  Value evaluate_items(const Node& node, Kind kind, Activation& frame);
  Value evaluate_dict(const Node& node, Activation& frame);
  Value evaluate_comparison(const Node& node, Activation& frame);
  Value evaluate_concat(const Node& node, Activation& frame);
  Value evaluate_subscript(const Node& node, Activation& frame);
  Value evaluate_call(const Node& node, Activation& frame, const Value* caller);
  Value apply_filter(const Node& node, const Value& input, Activation& frame);
  /// A chain of filters that starts at the text of a block.
  Value apply_filters(const Node& node, const Value& text, Activation& frame);
  Value evaluate_test(const Node& node, Activation& frame);
  CallArguments evaluate_arguments(const Arguments& arguments, Activation& frame, const Value* caller);

  Value call(const Value& callee, const CallArguments& arguments);
  Value call_macro(const MacroObject& macro, const CallArguments& arguments);
  Value resolve(std::string_view name);

  Runtime rt_;
  const Tree& tree_;
  Value variables_;
  std::string* out_ = nullptr;
};

}  // namespace vllm::jinja
