// The builders that the catalog lists, one file per family.
#pragma once

#include <optional>
#include <string>

#include "engine/graph/graph.h"
#include "models/model_options.h"
#include "models/published/published_config.h"

namespace models {

// Fully connected: flatten, 512, 512, classes, with ReLU between. Any sample shape.
engine::Graph build_mlp(const ModelOptions& options);

// Two blocks of 5x5 convolution (16, 32), batch norm, ReLU and 2x2 max pooling; then one dense
// layer.
engine::Graph build_convnet(const ModelOptions& options);

// Residual networks with a 7x7 stem of stride 2 and 3x3 maximum pooling, as in torchvision: names,
// shapes and initial values (convolutions normal by fan-out). The bottlenecks of networks with 50
// or more layers have their stride in the 3x3 convolution. Source: He et al., "Deep residual
// learning for image recognition", 2016.
engine::Graph build_resnet18(const ModelOptions& options);
engine::Graph build_resnet34(const ModelOptions& options);
engine::Graph build_resnet50(const ModelOptions& options);
engine::Graph build_resnet101(const ModelOptions& options);
engine::Graph build_resnet152(const ModelOptions& options);

// The same with a 3x3 stem of stride 1 and no pooling before the stages, for small images; the
// initial values are PyTorch's.
engine::Graph build_resnet18_cifar(const ModelOptions& options);
engine::Graph build_resnet50_cifar(const ModelOptions& options);

// The narrow networks of section 4.2 of that paper: 16, 32 and 64 channels, shortcuts without
// parameters (option A: every second pixel, zeros for the new channels). Convolutions are
// initialized normal by fan-out. The names are those of the widely used PyTorch port, whose last
// layer is "linear".
engine::Graph build_resnet20_cifar(const ModelOptions& options);
engine::Graph build_resnet56_cifar(const ModelOptions& options);

// 110 layers whose width grows by 5 in each of 51 blocks, from 16 to 271 (alpha 270; 17 blocks per
// stage); shortcuts without parameters. It differs from the paper's network in details that are
// kept: a batch norm without ReLU after the stem, no pooling except 2x2 averages in the shortcuts.
// Source: Han, Kim, Kim, "Deep pyramidal residual networks", 2017. The initial values are
// PyTorch's.
engine::Graph build_pyramidnet110(const ModelOptions& options);

// GPT-2's architecture (models/mingpt.h); vocabulary and context are the data set's classes and
// sample shape. With 65 tokens and a context of 64, gpt-nano (4 layers, 4 heads, width 128) has
// 809,856 parameters. gpt-mini is minGPT's: 6, 6, 192; gpt2 is the smallest of Radford et al.,
// "Language models are unsupervised multitask learners", 2019: 12, 12, 768.
engine::Graph build_gpt_nano(const ModelOptions& options);
engine::Graph build_gpt_mini(const ModelOptions& options);
engine::Graph build_gpt2(const ModelOptions& options);

// The layers listed in a TOML file; models/layer_list.cc describes the format.
// Throws engine::ModelError "FILE:LINE: ..." for invalid contents, and engine::ShapeError with the
// same prefix for shapes that do not match.
engine::Graph build_layer_list(const std::string& path, const ModelOptions& options);
std::string read_layer_list(const std::string& path);  // returns the file's text; throws ModelError
// Returns the shapes that a list without a data set states. `text`: its contents; "": the file is
// read. Throws ModelError.
ModelOptions layer_list_options(const std::string& path, const std::string& text = {});
// Returns the key config_json of the list `text` of the file `name`: the settings of the published
// model that it was made of; "" if it has none. Throws ModelError.
std::string layer_list_config(const std::string& name, const std::string& text);
// Returns the settings of a published model, by its layer list `definition`, or by the folder
// `name` if that is ""; nullopt for another model. Throws ModelError.
std::optional<PublishedConfig> published_config_of(const std::string& name,
                                                   const std::string& definition);

}  // namespace models
