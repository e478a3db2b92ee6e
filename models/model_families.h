// The builders that the catalog lists, one file a family.
#pragma once

#include "models/model_catalog.h"

namespace models {

// Fully connected: flatten, 512, 512, classes, with ReLU between. Any sample shape.
engine::Graph build_mlp(const ModelOptions& options);

// Two blocks of 5x5 convolution (16, 32), batch norm, ReLU and 2x2 max pooling; then one dense layer.
engine::Graph build_convnet(const ModelOptions& options);

// Residual network of basic blocks with a 3x3 stem and no pooling before the stages, as made for 32x32 images.
// Source: He et al., "Deep residual learning for image recognition", 2016; parameter names are torchvision's.
engine::Graph build_resnet18_cifar(const ModelOptions& options);

// The layers listed in a TOML file; see models/layer_list.cc for the format.
// Throws engine::ModelError "FILE:LINE: ..." for what is not understood, engine::ShapeError likewise for what does not fit.
engine::Graph build_layer_list(const std::string& path, const ModelOptions& options);
ModelOptions layer_list_options(const std::string& path);

}  // namespace models
