#!/usr/bin/env python3
"""Builds the backend of torch.distributed against the PyTorch of PEER_PYTHON, for the other tests of this folder.

Usage: tests/torch/torch_build_test.py BUILD_FOLDER     exits with 77 without PyTorch
"""
import sys

import torch_ranks

torch_ranks.require_torch()
torch_ranks.build_module(sys.argv[1])
print("engine_torch was built in", torch_ranks.module_folder(sys.argv[1]))
