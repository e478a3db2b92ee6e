// Lists the kinds of layers that a model's TOML file can name.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "models/layer_options.h"

namespace models {

// `classes` is the value of the word "classes". Throws engine::ModelError "FILE:LINE: ..." for an
// unknown kind, with the nearest known one, and for an option that is missing or of the wrong type;
// the caller checks for options that no kind reads.
engine::LayerPtr make_layer(const std::string& kind, Options& options, std::int64_t classes);

// All kinds, with the options that they read.
struct LayerKind {
  std::string name;
  std::vector<OptionDescription> options;
};
std::vector<LayerKind> layer_kinds();
// The same with shapes and rules, as the table in docs/toml.md.
std::string layer_kinds_table();

}  // namespace models
