#!/usr/bin/env python3
"""Prints what a model says of images, in onnxruntime: the same as `engine predict`.

Usage: predict_onnx.py MODEL.onnx IMAGE...
MODEL.onnx comes from `engine export --input pixels`; the images have the size that it was trained with.
"""
import json
import sys

import numpy
import onnxruntime
from PIL import Image

model = onnxruntime.InferenceSession(sys.argv[1])
classes = json.loads(model.get_modelmeta().custom_metadata_map["class_names"])
print("input,sample,prediction,probability")
for file in sys.argv[2:]:
    pixels = numpy.asarray(Image.open(file).convert("RGB"), "float32")  # height, width, channels
    (logits,) = model.run(["logits"], {"input": pixels.transpose(2, 0, 1)[None]})
    weights = numpy.exp(logits[0] - logits[0].max())
    best = int(weights.argmax())
    print(f"{file},1,{classes[best]},{weights[best] / weights.sum():.9f}")
