// The state of a translation from ONNX: what is known of each value of the graph, and the layers so
// far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "io/interchange/onnx/onnx_reader.h"
#include "models/onnx_origins/onnx_computations.h"
#include "models/onnx_origins/onnx_extents.h"
#include "models/onnx_origins/onnx_origins.h"
#include "models/onnx_origins/onnx_reading.h"

namespace models {

// Places ONNX's dimensions of a value in the engine's tensor of one sample. Transpositions, shapes
// and selected entries change this alone, until a layer needs another order.
struct OnnxPlain {
  struct Axis {
    std::int64_t extent = 0;  // never 1
    std::int64_t entry = -1;  // the selected one; -1: all

    bool operator==(const Axis&) const = default;
  };

  std::vector<std::int64_t> stored;    // the layer's output shape
  std::vector<Axis> axes;              // the same numbers, in the same order, by finer dimensions
  std::vector<std::vector<int>> dims;  // the axes of ONNX's dimensions; kOnnxBatchAxis: the samples
  double scale = 1;                    // a factor of all numbers
};
inline constexpr int kOnnxBatchAxis = -1;
// Returns true if the axes of a dimension include that of the samples.
inline bool contains_samples(const std::vector<int>& axes) {
  return std::ranges::find(axes, kOnnxBatchAxis) != axes.end();
}

// The output of a layer. ONNX's shape starts with the batch and has channels before height and
// width; the engine's layout of the same numbers is that of one sample.
struct OnnxActivation {
  enum class Layout : std::uint8_t {
    kImage,     // [h, w, c]
    kVector,    // [c]
    kGroups,    // an image whose channels are in groups: [batch, groups, c / groups, h, w]
    kShuffled,  // after a transposition of these two
    kPlain,     // any other: see OnnxPlain
  };

  int layer = -1;  // its index; -1: the sample
  std::vector<std::int64_t> shape;
  Layout layout = Layout::kImage;
  OnnxPlain plain{};  // of kPlain
};

struct OnnxConstant {
  const io::StoredTensor* tensor = nullptr;
  bool transposed = false;                   // its two dimensions change places
  OnnxOrigin origin = OnnxOrigin::kNumbers;  // that of a Constant node
  std::string alias{};   // its name as the output of an Identity, or in PyTorch; "": its own
  std::string reader{};  // the module that reads a tensor without a name of its own
  OnnxComputation computation = OnnxComputation::kNone;  // by the exporter, from a parameter
};

// A constant that is computed: from shapes, indices and masks.
struct OnnxTensor {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> integers;  // or booleans; extents may be symbols
  std::vector<double> reals;           // in place of integers
  bool is_real = false;
};

// Integers that count samples: step * sample + offset, with the sample as their first dimension.
struct OnnxSampleIndices {
  std::int64_t step = 1;
  OnnxTensor offsets;  // [1, ...]
};

// The token ids of all samples, [batch, length]: the graph's input. They choose rows of a table.
struct OnnxTokens {
  std::vector<std::int64_t> shape;
};

// The parts of a value by SplitToSequence, which are values of their own: part_name().
struct OnnxSequence {
  std::int64_t count = 0;
};

// The output of a node that has no translation.
struct OnnxUntranslated {};

using OnnxKnown = std::variant<OnnxUntranslated, OnnxActivation, OnnxConstant, OnnxTensor,
                               OnnxSampleIndices, OnnxTokens, OnnxSequence>;

// A parameter or buffer of a layer, and where its numbers are. Without a tensor they are 0.
struct OnnxLayerArray {
  std::string name;  // "weight"
  OnnxConstant from;
  std::vector<std::int64_t> shape;
  std::vector<double> values{};  // computed ones, in place of a tensor
};

// An entry of the list of layers.
struct OnnxListedLayer {
  std::string kind, name, tied;
  std::vector<int> inputs;                                   // -1: the sample
  std::vector<std::pair<std::string, std::string>> options;  // with values as in TOML
  std::vector<OnnxLayerArray> arrays;
  std::string zero_bias{};  // the bias in PyTorch of a layer that has none in the file
  bool keeps_last = false;  // its last dimension is that of each input
};

// The known values of the graph.
class OnnxValues {
 public:
  OnnxValues(const io::OnnxGraph& graph, const OnnxOrigins& origins);

  const OnnxKnown* find(const std::string& value) const;  // null: no earlier node computes it
  void set(const std::string& value, OnnxKnown known);
  std::size_t readers(const std::string& value) const;  // the graph's output counts as one
  // Counts the inputs of a node that has been translated as read.
  void count_reads(const io::ReadNode& node);
  // Whether one node alone still reads the outputs of this layer, counting all values that differ
  // in shape, order or selected entries.
  bool has_one_reader_left(int layer) const;

 private:
  std::unordered_map<std::string, OnnxKnown> known_;
  std::unordered_map<std::string, std::size_t> readers_;
  std::unordered_map<std::string, std::size_t> reads_;  // by nodes that have been translated
  std::unordered_map<int, std::unordered_set<std::string>> values_of_layers_;
};

// The list of layers, in the order of the nodes.
class OnnxLayerList {
 public:
  OnnxLayerList(const io::OnnxGraph& graph, const OnnxOrigins& origins);

  const std::vector<OnnxListedLayer>& all() const { return layers_; }
  OnnxListedLayer& at(int layer) { return layers_.at(static_cast<std::size_t>(layer)); }
  const OnnxListedLayer& at(int layer) const { return layers_.at(static_cast<std::size_t>(layer)); }
  int add(OnnxListedLayer layer);  // returns its index
  // Returns a layer name that is still free: from the name of a parameter, else of the node.
  std::string free_name(const std::string& parameter, const io::ReadNode& node);
  // The same for a layer that is a parameter alone: its name, without an ending ".weight".
  std::string free_parameter_name(const std::string& parameter);
  // Lets the layer have the name of the owner of this parameter, if that is free.
  void rename(int layer, const std::string& parameter);
  // The layer that has this parameter as its weight; -1: none so far. Parameters with different
  // names are separate, even if the file has one tensor for them.
  int user_of(const OnnxConstant& weight) const;
  void set_user(const OnnxConstant& weight, int layer);
  // Whether another layer of the list reads this one.
  bool is_read(int layer) const { return read_.contains(layer); }

 private:
  std::string unique(const std::string& wanted);

  std::vector<OnnxListedLayer> layers_;
  std::unordered_set<int> read_;
  std::unordered_map<std::string, int> users_;    // by parameter_key()
  std::unordered_map<std::string, int> repeats_;  // how often a name was wanted again
  std::unordered_set<std::string> names_{"", "input", "labels", "targets"};
  std::unordered_set<std::string> owners_;  // names for the layers of the graph's parameters
};

// The operands of a layer `matmul`, before they were brought in order, and its output.
struct OnnxProduct {
  OnnxActivation first, second;
  OnnxPlain output;
};

struct OnnxTranslation {
  // Throws engine::ModelError unless the graph has one input, images, rows of numbers or token ids,
  // and one output. `buffers`: tensors that are no parameters by their numbers. `changed`: the
  // graph to translate in place of the file's.
  OnnxTranslation(const io::OnnxReader& source, OnnxReading how,
                  std::unordered_set<const io::StoredTensor*> buffers,
                  std::optional<io::OnnxGraph> changed);

  OnnxReading reading;
  const io::OnnxReader& file;
  const std::optional<io::OnnxGraph> changed_graph;
  const io::OnnxGraph& graph;
  OnnxOrigins origins;
  OnnxValues values;
  OnnxLayerList layers;
  std::vector<std::string> notes;                 // what the user should know, a line each
  std::unordered_map<int, OnnxProduct> products;  // by layer
  // The scores of attention to earlier positions alone, and the same before the mask: layers.
  std::unordered_map<int, int> causal;
  // Tensors of the file that are not trained, although they are parameters or may contain some:
  // those that are read as a number, and those that the exporter has computed.
  std::vector<std::string> read_as_numbers, read_as_computed;  // each once
  OnnxExporterEffects effects;
  std::uint64_t compared = 0;    // elements, by has_same_numbers()
  std::size_t computed = 0;      // elements of computed constants
  std::size_t folded_norms = 0;  // batch norms that are part of a convolution
  bool ends_in_softmax = false;  // which is left out
  std::size_t pixel_nodes = 0;   // the first nodes, which scale pixels as the data set does
  std::int64_t fixed_batch = 0;  // number of samples; 0: chosen when the model runs
  std::int64_t tokens = 0;       // token ids of a sample; 0: it is an image or a row of numbers
};

inline const std::string& initializer_name(const OnnxConstant& constant) {
  return constant.alias.empty() ? constant.tensor->name : constant.alias;
}
// Whether a layer that trains its weights may train this one as such: a parameter, or a tensor that
// the exporter has computed, perhaps from a parameter.
bool is_trained_weight(const OnnxConstant& constant);
// Whether the exporter has computed other numbers than those of a parameter.
inline bool has_computed_numbers(const OnnxConstant& constant) {
  return constant.computation == OnnxComputation::kNumbers && constant.alias.empty();
}
// Identifies the parameter that a constant stands for.
std::string parameter_key(const OnnxConstant& constant);

void add_once(std::vector<std::string>& names, const std::string& name);

inline bool is_integer_type(std::int64_t onnx_type) { return onnx_type == 6 || onnx_type == 7; }
// Returns the value of an input of integers, [batch, length]; nullopt for other types. Throws
// engine::ModelError, which names `file`, for other shapes.
std::optional<OnnxTokens> tokens_of(const std::string& file, const io::ReadValue& input);

// The module that a node belongs to, "layer1.0.conv1"; "": unknown.
std::string module_of(const io::ReadNode& node);

std::string onnx_shape_text(const std::vector<std::int64_t>& shape);  // "[batch, 3, ?, 7]"

}  // namespace models
