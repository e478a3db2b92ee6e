// The kinds of layers that a model's TOML file can name.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "models/layer_options.h"

namespace models {

// `classes` is what the word "classes" stands for. Throws engine::ModelError "FILE:LINE: ..." for
// an unknown kind, with the nearest, and for an option that is missing or of the wrong type; the
// caller asks for options that no kind knows.
engine::LayerPtr make_layer(const std::string& kind, Options& options, std::int64_t classes);

// All kinds, with the options that they ask for.
struct LayerKind {
  std::string name;
  std::vector<OptionDescription> options;
};
std::vector<LayerKind> layer_kinds();
// The same with shapes and rules, as the table in docs/toml.md.
std::string layer_kinds_table();

}  // namespace models
