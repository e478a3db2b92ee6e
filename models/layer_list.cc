// A model from a TOML file: one [[layer]] table a layer, in the order of the parameters in checkpoints.
//
//   sample_shape = [28, 28, 1]       for runs without a data set; else the data set says it
//   classes = 10                     likewise
//   logits = "fc"                    the layer that predictions are read from; default: the last one
//
//   [[layer]]
//   kind = "conv2d"                  required
//   name = "conv1"                   required for layers with parameters: "conv1.weight", ...
//   inputs = ["input"]               default: the layer before; "input" is the sample
//   out_channels = 16                the kind's own options
//
// Options, with their defaults; those without one are required:
//   dense           out (or the word "classes"), bias = true
//   conv2d          out_channels, kernel = 3, stride = 1, padding = 0, bias = true
//   batch_norm2d, sync_batch_norm2d    eps = 1e-5, momentum = 0.1 (sync: statistics over the samples of all replicas)
//   max_pool2d, average_pool2d    window = 2, stride = the window, padding = 0, ceil_mode = false
//   pad_channels    before = 0, after = 0
//   dropout         rate = 0.5
//   relu, global_average_pool, flatten, add      none
// The loss, softmax cross entropy, is added behind the logits.
#include <algorithm>
#include <map>
#include <optional>

#include <toml++/toml.h>

#include "engine/layers/layers.h"
#include "models/chain.h"
#include "models/model_families.h"
#include "models/nearest.h"

namespace models {
namespace {

namespace layers = engine::layers;

// The place of a node in the file, before every message.
std::string place(const std::string& path, const toml::source_region& region) {
  return path + ":" + std::to_string(region.begin.line) + ": ";
}

[[noreturn]] void fail(const std::string& path, const toml::source_region& region, const std::string& text) {
  throw engine::ModelError(place(path, region) + text);
}

// Typed access to one table; every key must be asked for or be refused.
class Options {
 public:
  Options(const std::string& path, const toml::table& table) : path_(path), table_(table) {}

  template <class T>
  std::optional<T> find(const std::string& key, const char* type) {
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    const std::optional<T> value = node->value_exact<T>();
    if (!value) fail(path_, node->source(), "'" + key + "' must be " + type);
    return value;
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) {
    return find<std::int64_t>(key, "an integer").value_or(otherwise);
  }
  std::int64_t integer(const std::string& key) {
    const auto value = find<std::int64_t>(key, "an integer");
    if (!value) missing(key);
    return *value;
  }
  double number(const std::string& key, double otherwise) {
    const toml::node* node = table_.get(key);
    if (node != nullptr && node->is_integer()) return static_cast<double>(integer(key));
    return find<double>(key, "a number").value_or(otherwise);
  }
  bool boolean(const std::string& key, bool otherwise) { return find<bool>(key, "true or false").value_or(otherwise); }
  std::optional<std::string> text(const std::string& key) { return find<std::string>(key, "a string"); }

  template <class T>
  std::optional<std::vector<T>> list(const std::string& key, const char* type) {
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    std::vector<T> values;
    const toml::array* array = node->as_array();
    if (array == nullptr) fail(path_, node->source(), "'" + key + "' must be a list of " + type);
    for (const toml::node& element : *array) {
      const std::optional<T> value = element.value_exact<T>();
      if (!value) fail(path_, element.source(), "'" + key + "' must be a list of " + type);
      values.push_back(*value);
    }
    return values;
  }
  void allow(const std::string& key) { asked_.push_back(key); }
  bool is_text(const std::string& key) const { return table_.get(key) != nullptr && table_.get(key)->is_string(); }

  void refuse_other_keys(const std::string& where) const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(asked_.begin(), asked_.end(), name) == asked_.end())
        fail(path_, key.source(),
             "unknown key '" + name + "' in " + where + ": did you mean '" + nearest_name(name, asked_) +
                 "'? Known here: " + join_names(asked_));
    }
  }
  [[noreturn]] void missing(const std::string& key) const { fail(path_, table_.source(), "'" + key + "' is missing"); }
  [[noreturn]] void refuse(const std::string& key, const std::string& text) const {
    fail(path_, table_.get(key) != nullptr ? table_.get(key)->source() : table_.source(), text);
  }

 private:
  const std::string& path_;
  const toml::table& table_;
  std::vector<std::string> asked_;
};

engine::LayerPtr make_dense(Options& options, std::int64_t classes) {
  std::int64_t out = classes;
  if (options.is_text("out")) {
    if (options.text("out") != "classes") options.refuse("out", "'out' must be an integer or \"classes\"");
  } else {
    out = options.integer("out");
  }
  return layers::dense(out, options.boolean("bias", true));
}

engine::LayerPtr make_conv2d(Options& options, std::int64_t) {
  layers::Conv2dOptions o;
  o.out_channels = options.integer("out_channels");
  o.kernel = options.integer("kernel", o.kernel);
  o.stride = options.integer("stride", o.stride);
  o.padding = options.integer("padding", o.padding);
  o.bias = options.boolean("bias", o.bias);
  return layers::conv2d(o);
}

engine::LayerPtr make_batch_norm2d(Options& options, std::int64_t) {
  layers::BatchNormOptions o;
  o.eps = options.number("eps", o.eps);
  o.momentum = options.number("momentum", o.momentum);
  return layers::batch_norm2d(o);
}

engine::LayerPtr make_sync_batch_norm2d(Options& options, std::int64_t classes) {
  return make_batch_norm2d(options, classes)->synchronized();
}

layers::PoolOptions pool_options(Options& options) {
  layers::PoolOptions o;
  o.window = options.integer("window", o.window);
  o.stride = options.integer("stride", o.stride);
  o.padding = options.integer("padding", o.padding);
  o.ceil_mode = options.boolean("ceil_mode", o.ceil_mode);
  return o;
}

struct Kind {
  const char* name;
  engine::LayerPtr (*make)(Options& options, std::int64_t classes);
};

constexpr Kind kKinds[] = {
    {"dense", make_dense},
    {"conv2d", make_conv2d},
    {"batch_norm2d", make_batch_norm2d},
    {"sync_batch_norm2d", make_sync_batch_norm2d},
    {"relu", [](Options&, std::int64_t) { return layers::relu(); }},
    {"max_pool2d", [](Options& o, std::int64_t) { return layers::max_pool2d(pool_options(o)); }},
    {"average_pool2d", [](Options& o, std::int64_t) { return layers::average_pool2d(pool_options(o)); }},
    {"pad_channels",
     [](Options& o, std::int64_t) { return layers::pad_channels(o.integer("before", 0), o.integer("after", 0)); }},
    {"global_average_pool", [](Options&, std::int64_t) { return layers::global_average_pool(); }},
    {"flatten", [](Options&, std::int64_t) { return layers::flatten(); }},
    {"add", [](Options&, std::int64_t) { return layers::add(); }},
    {"dropout", [](Options& o, std::int64_t) { return layers::dropout(o.number("rate", 0.5)); }},
};

engine::LayerPtr make_layer(const std::string& kind, Options& options, std::int64_t classes) {
  std::vector<std::string> names;
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.make(options, classes);
    names.emplace_back(known.name);
  }
  options.refuse("kind",
                 "unknown kind '" + kind + "': did you mean '" + nearest_name(kind, names) + "'? There are " + join_names(names));
}

class Builder {
 public:
  Builder(const std::string& path, const ModelOptions& options)
      : path_(path), options_(options), ends_(begin_classifier(graph_, options)), last_(ends_.input) {
    ids_["input"] = ends_.input;
  }

  void add(const toml::table& table) {
    Options options(path_, table);
    const std::optional<std::string> kind = options.text("kind");
    if (!kind) options.missing("kind");
    const std::string name = options.text("name").value_or("");
    if (ids_.contains(name)) options.refuse("name", "the name '" + name + "' is used twice");
    std::vector<engine::NodeId> inputs{last_};
    if (const auto listed = options.list<std::string>("inputs", "layer names")) {
      inputs.clear();
      for (const std::string& from : *listed) inputs.push_back(find(from, options, "inputs"));
    }
    try {
      engine::LayerPtr layer = make_layer(*kind, options, options_.classes);
      options.refuse_other_keys("a layer of kind '" + *kind + "'");
      last_ = graph_.add(name, std::move(layer), inputs);
    } catch (const engine::ShapeError& error) {
      throw engine::ShapeError(place(path_, table.source()) + error.what());
    } catch (const engine::ModelError& error) {
      const std::string text = error.what();
      throw engine::ModelError(text.starts_with(path_ + ":") ? text : place(path_, table.source()) + text);
    }
    if (!name.empty()) ids_[name] = last_;
  }

  engine::Graph finish(Options& top) {
    const std::optional<std::string> logits_name = top.text("logits");
    const engine::NodeId logits = logits_name ? find(*logits_name, top, "logits") : last_;
    const engine::Shape& shape = graph_.nodes()[static_cast<std::size_t>(logits)].shape;
    if (!(shape == engine::Shape{options_.classes}))
      throw engine::ShapeError(path_ + ": " + graph_.describe(logits) + ", which gives the logits: expected shape " +
                               engine::Shape{options_.classes}.to_string() + " (the classes), got " + shape.to_string());
    end_classifier(graph_, ends_, logits);
    return std::move(graph_);
  }

 private:
  engine::NodeId find(const std::string& name, const Options& options, const char* key) const {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, id] : ids_) names.push_back(known);
    options.refuse(key, "no layer '" + name + "' before this one: did you mean '" + nearest_name(name, names) + "'?");
  }

  const std::string& path_;
  const ModelOptions& options_;
  engine::Graph graph_;
  Ends ends_;
  engine::NodeId last_;
  std::map<std::string, engine::NodeId> ids_;
};

toml::table parse(const std::string& path) {
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    if (error.source().begin.line == 0) throw engine::ModelError(path + ": " + std::string(error.description()));
    fail(path, error.source(), std::string(error.description()));
  }
}

}  // namespace

engine::Graph build_layer_list(const std::string& path, const ModelOptions& options) {
  const toml::table file = parse(path);
  Options top(path, file);
  top.list<std::int64_t>("sample_shape", "integers");
  top.integer("classes", 0);
  top.allow("logits");
  top.allow("layer");
  top.refuse_other_keys("the file");
  const toml::array* list = file["layer"].as_array();
  if (list == nullptr || list->empty()) throw engine::ModelError(path + ": expected at least one [[layer]] table");
  Builder builder(path, options);
  for (const toml::node& node : *list) {
    if (!node.is_table()) fail(path, node.source(), "'layer' must be a list of tables: write [[layer]]");
    builder.add(*node.as_table());
  }
  return builder.finish(top);
}

ModelOptions layer_list_options(const std::string& path) {
  const toml::table file = parse(path);
  Options top(path, file);
  const auto shape = top.list<std::int64_t>("sample_shape", "integers");
  if (!shape || shape->size() != 3)
    throw engine::ModelError(path + ": without a data set the file must say sample_shape = [height, width, channels]");
  return {.sample_shape = engine::Shape(*shape), .classes = top.integer("classes")};
}

}  // namespace models
