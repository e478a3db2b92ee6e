// Networks from ONNX: a graph made of the input's bytes is translated, and, if it is small, runs a
// step.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "io/base/files/io_error.h"
#include "io/interchange/onnx_writer.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/targets.h"

namespace fuzz {
namespace {

using Ints = std::vector<std::int64_t>;

// An operator with a letter for each input: V a value, F floats, I integers, A any of these. Those
// with a small letter may be left out, as may all attributes.
struct Operator {
  const char *type, *inputs, *attributes;
};
constexpr std::array kOperators{
    Operator{"Conv", "VFf", "pads strides group dilations auto_pad kernel_shape"},
    Operator{"ConvTranspose", "VFf", "pads strides group output_padding output_shape auto_pad"},
    Operator{"BatchNormalization", "VFFFF", "epsilon momentum"},
    Operator{"InstanceNormalization", "VFF", "epsilon"},
    Operator{"GroupNormalization", "VFF", "epsilon num_groups"},
    Operator{"LayerNormalization", "VFf", "epsilon axis"},
    Operator{"Gemm", "VFf", "transB alpha beta"},
    Operator{"MatMul", "VA", ""},
    Operator{"MatMul", "VV", ""},
    Operator{"Add", "AA", ""},
    Operator{"Sub", "AA", ""},
    Operator{"Mul", "AA", ""},
    Operator{"Div", "AA", ""},
    Operator{"Pow", "AA", ""},
    Operator{"Sum", "AAa", ""},
    Operator{"Max", "AAa", ""},
    Operator{"Min", "AAa", ""},
    Operator{"Mod", "II", ""},
    Operator{"Equal", "AA", ""},
    Operator{"Less", "AA", ""},
    Operator{"LessOrEqual", "AA", ""},
    Operator{"Greater", "AA", ""},
    Operator{"GreaterOrEqual", "AA", ""},
    Operator{"And", "AA", ""},
    Operator{"Or", "AA", ""},
    Operator{"Xor", "AA", ""},
    Operator{"Not", "A", ""},
    Operator{"Where", "AAA", ""},
    Operator{"Relu", "V", ""},
    Operator{"Sigmoid", "V", ""},
    Operator{"HardSigmoid", "V", "alpha beta"},
    Operator{"HardSwish", "V", ""},
    Operator{"Elu", "V", "alpha"},
    Operator{"LeakyRelu", "V", "alpha"},
    Operator{"Gelu", "V", "approximate"},
    Operator{"PRelu", "VA", ""},
    Operator{"Clip", "Vff", ""},
    Operator{"Erf", "A", ""},
    Operator{"Sqrt", "A", ""},
    Operator{"Neg", "A", ""},
    Operator{"Reciprocal", "A", ""},
    Operator{"Softmax", "V", "axis"},
    Operator{"LogSoftmax", "V", "axis"},
    Operator{"Dropout", "Vf", ""},
    Operator{"MaxPool", "V", "kernel_shape pads strides dilations auto_pad ceil_mode"},
    Operator{"AveragePool", "V", "kernel_shape pads strides auto_pad ceil_mode count_include_pad"},
    Operator{"GlobalAveragePool", "V", ""},
    Operator{"GlobalMaxPool", "V", ""},
    Operator{"ReduceMean", "Vi", "keepdims"},
    Operator{"ReduceSum", "Vi", "keepdims"},
    Operator{"ReduceMax", "Vi", "keepdims axes"},
    Operator{"ReduceMin", "Vi", "keepdims"},
    Operator{"ReduceL2", "Vi", "keepdims axes"},
    Operator{"Concat", "AAa", "axis"},
    Operator{"Split", "Ai", "axis num_outputs"},
    Operator{"Slice", "AIIii", ""},
    Operator{"Gather", "AI", "axis"},
    Operator{"Transpose", "A", "perm"},
    Operator{"Reshape", "AI", "allowzero"},
    Operator{"Flatten", "A", "axis"},
    Operator{"Squeeze", "Ai", ""},
    Operator{"Unsqueeze", "AI", ""},
    Operator{"DepthToSpace", "V", "blocksize mode"},
    Operator{"SpaceToDepth", "V", "blocksize"},
    Operator{"Expand", "AI", ""},
    Operator{"Tile", "AI", ""},
    Operator{"Pad", "AIff", "mode"},
    Operator{"Resize", "VffI", "mode coordinate_transformation_mode nearest_mode"},
    Operator{"Shape", "A", "start end"},
    Operator{"Cast", "A", "to"},
    Operator{"Range", "III", ""},
    Operator{"ConstantOfShape", "I", ""},
    Operator{"ScatterND", "AIA", ""},
    Operator{"Identity", "A", ""},
};

// Networks that read token ids have these beside those above.
constexpr std::array kTextOperators{
    Operator{"Gather", "Fi", "axis"},
    Operator{"Gather", "FV", ""},
    Operator{"Cast", "V", "to"},
    Operator{"CastLike", "AA", ""},
    Operator{"Trilu", "Ai", "upper"},
    Operator{"GatherElements", "II", "axis"},
    Operator{"GatherND", "AI", ""},
    Operator{"IsNaN", "V", ""},
    Operator{"SplitToSequence", "Vi", "axis"},
    Operator{"SequenceAt", "VI", ""},
    Operator{"MatMul", "VF", ""},
    Operator{"MatMul", "VV", ""},
    Operator{"Transpose", "A", "perm"},
    Operator{"Where", "AAA", ""},
    Operator{"Softmax", "V", "axis"},
    Operator{"Expand", "FI", ""},
};

constexpr std::array<std::int64_t, 24> kSmall{0, 1, 2, 3, 4, 6,  8,  12, 1, 2,  3,   4,
                                              1, 2, 4, 6, 5, -1, -2, 7,  9, 36, 144, -3};
constexpr std::array<std::int64_t, 8> kExtreme{INT64_MAX, INT64_MIN,  INT64_C(1) << 31, -4,
                                               1 << 20,   UINT32_MAX, INT64_C(1) << 62, 1000};
constexpr std::array<float, 8> kReals{0.5F, 0, 1, -1, 1e-5F, 3e38F, HUGE_VALF, -HUGE_VALF};
constexpr std::array<const char*, 16> kTexts{
    "SAME_UPPER", "SAME_LOWER",    "VALID",      "reflect",    "edge", "wrap", "linear", "cubic",
    "nearest",    "align_corners", "half_pixel", "asymmetric", "CRD",  "DCR",  "tanh",   "ceil"};
// The image is [batch, 4, 6, 6], or a row of 4 numbers.
const std::vector<Ints> kShapes{{},     {1},       {4},          {4, 4},       {4, 1, 1},
                                {6, 6}, {4, 6, 6}, {4, 4, 3, 3}, {4, 1, 3, 3}, {1, 4, 6, 6},
                                {6},    {4, 2},    {36, 4},      {144, 3},     {2, 4, 1, 1},
                                {3, 4}, {4, 4, 1}, {1, 1, 4},    {1, 36, 4},   {0}};

std::int64_t integer(Choices& choices) {
  const unsigned how = choices.next();
  return how % 32 == 31 ? choices.of(kExtreme) : kSmall[how % kSmall.size()];
}

Ints integers(Choices& choices) {
  Ints values;
  for (unsigned count = choices.next() % 9; count > 0; --count) values.push_back(integer(choices));
  return values;
}

bool is_text(std::string_view name) {
  return name == "auto_pad" || name == "mode" || name == "approximate" || name.ends_with("_mode");
}
bool is_list(std::string_view name) {
  for (const char* list : {"pads", "strides", "dilations", "kernel_shape", "output_padding",
                           "output_shape", "axes", "perm"})
    if (name == list) return true;
  return false;
}

class GraphMaker {
 public:
  explicit GraphMaker(Choices& choices) : choices_(choices) {}

  io::OnnxModel make() {
    const unsigned how = choices_.next();
    model_.inputs = {{.name = "x", .shape = {"batch", 4, 6, 6}}};
    if (how % 8 == 7) model_.inputs[0].shape = {"batch", 4};
    if (how % 16 == 6) model_.inputs[0].shape[0] = std::int64_t{2};
    is_text_ = how % 16 == 13;
    if (is_text_) begin_text();
    if (how % 16 == 4) model_.inputs[0].shape = {"batch", 4, "height", "width"};
    constexpr unsigned kMaxNodes = 12;
    for (unsigned i = 0; i < kMaxNodes && !choices_.ended(); ++i) add_node();
    add_end(how / 16);
    model_.outputs = {{.name = values_.back(), .shape = {"batch", 3}}};
    return std::move(model_);
  }

 private:
  // Ids [batch, 6] choose rows of a table, whose transposed copy others may read.
  void begin_text() {
    model_.inputs = {{.name = "x", .type = io::DType::kI64, .shape = {"batch", 6}}};
    add({.type = "Gather", .name = "embedding", .inputs = {add_floats({6, 4}), "x"}});
  }

  std::string add_floats(const Ints& shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    const std::vector<float> numbers(count, choices_.of(kReals));
    return add_constant(io::DType::kF32, shape, std::as_bytes(std::span(numbers)), "weight");
  }
  std::string add_integers() {
    const Ints numbers = integers(choices_);
    return add_constant(io::DType::kI64, {std::ssize(numbers)}, std::as_bytes(std::span(numbers)),
                        "indices");
  }
  std::string add_constant(io::DType type, const Ints& shape, std::span<const std::byte> bytes,
                           const char* role) {
    io::NamedArray array{.name = "c" + std::to_string(model_.constants.size()) + "." + role,
                         .type = type,
                         .shape = shape,
                         .data = {bytes.begin(), bytes.end()}};
    model_.constants.push_back(std::move(array));
    return model_.constants.back().name;
  }

  // Values near the end of the graph are as frequent as all others.
  std::string value() {
    const unsigned how = choices_.next();
    return how % 2 == 0 ? values_.back() : values_[how / 2 % values_.size()];
  }
  std::string input(char kind) {
    const unsigned how = choices_.next();
    if (kind == 'V' || kind == 'v') return value();
    if (kind == 'F' || kind == 'f') return add_floats(kShapes[how % kShapes.size()]);
    if (kind == 'I' || kind == 'i') return how % 4 == 3 ? value() : add_integers();
    if (how % 4 == 3) return add_integers();
    return how % 4 == 2 ? add_floats(kShapes[choices_.next() % kShapes.size()]) : value();
  }

  io::OnnxAttribute attribute(const std::string& name) {
    if (is_text(name)) return {name, std::string(choices_.of(kTexts))};
    if (is_list(name)) return {name, integers(choices_)};
    if (name == "epsilon" || name == "alpha" || name == "beta" || name == "momentum")
      return {name, choices_.of(kReals)};
    return {name, integer(choices_)};
  }

  void add_attributes(const char* names, io::OnnxNode& node) {
    const std::string all = names;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = std::min(all.find(' ', at), all.size());
      if (choices_.next() % 2 == 1) node.attributes.push_back(attribute(all.substr(at, end - at)));
      at = end + 1;
    }
  }

  void add_node() {
    const unsigned which = choices_.next();
    const Operator& kind = is_text_ && which % 2 == 0
                               ? kTextOperators[which / 2 % kTextOperators.size()]
                               : kOperators[which % kOperators.size()];
    io::OnnxNode node{.type = kind.type, .name = "n" + std::to_string(model_.nodes.size())};
    for (const char* input_kind = kind.inputs; *input_kind != 0; ++input_kind) {
      if (*input_kind >= 'a' && choices_.next() % 4 == 0) break;
      node.inputs.push_back(input(*input_kind));
    }
    add_attributes(kind.attributes, node);
    add(std::move(node));
    if (kind.type == std::string_view("Split")) {
      model_.nodes.back().outputs.push_back(values_.back() + ".1");
      values_.push_back(model_.nodes.back().outputs[1]);
    }
  }
  void add(io::OnnxNode node) {
    node.outputs = {"v" + std::to_string(model_.nodes.size())};
    values_.push_back(node.outputs[0]);
    model_.nodes.push_back(std::move(node));
  }

  // Most graphs end with logits.
  void add_end(unsigned how) {
    if (how % 4 == 3) return;
    const bool has_mean = how % 4 != 2;
    if (is_text_) return add_end_of_text(has_mean);
    add({.type = has_mean ? "GlobalAveragePool" : "Identity",
         .name = "mean",
         .inputs = {values_.back()}});
    add({.type = "Flatten", .name = "flat", .inputs = {values_.back()}});
    add({.type = "Gemm",
         .name = "fc",
         .inputs = {values_.back(), add_floats(has_mean ? Ints{4, 3} : Ints{144, 3})}});
  }

  // A class for each text, or for each position.
  void add_end_of_text(bool has_mean) {
    if (has_mean)
      add({.type = "ReduceMean",
           .name = "mean",
           .inputs = {values_.back()},
           .attributes = {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}}});
    add({.type = "MatMul", .name = "fc", .inputs = {values_.back(), add_floats({4, 3})}});
  }

  Choices& choices_;
  bool is_text_ = false;
  io::OnnxModel model_;
  std::vector<std::string> values_{"x"};
};

void run(const models::OnnxImport& found) {
  models::ModelOptions options{
      .sample_shape = found.definition.find("sample_shape = [1, 1, 4]") == std::string::npos
                          ? engine::Shape{6, 6, 4}
                          : engine::Shape{1, 1, 4},
      .classes = 3,
      .definition = found.definition};
  if (found.text) options.sample_shape = engine::Shape{found.text->length};
  if (found.text && found.text->vocabulary == 0) options.label_shape = engine::Shape{};
  const engine::Graph graph = models::build_model("file.onnx", options);
  static engine::ThreadPool one(1);
  const engine::Plan plan = engine::Plan::compile(
      graph, {.max_batch = 2, .dtype = engine::DType::kF32, .threads = 1, .training = true});
  run_step(graph, plan, options, one);
}

}  // namespace

void onnx_graph(Input input) {
  static const Folder folder;
  Choices choices(input);
  const std::string path = folder.path() + "/net.onnx";
  try {
    io::save_onnx(GraphMaker(choices).make(), path);
    run(models::import_onnx(io::OnnxReader(path), models::OnnxArrays::kLoad));
  } catch (const io::Error&) {
  } catch (const engine::ModelError&) {
  } catch (const engine::ShapeError&) {
  } catch (const engine::MemoryError&) {
  }
}

}  // namespace fuzz
