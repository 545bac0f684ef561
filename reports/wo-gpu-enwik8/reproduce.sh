#!/bin/sh
# Makes the report of the study wo-gpu-enwik8 again. Run it in an empty folder or a checkout.
attnlab merge wo-gpu-enwik8.zip --sha256 627a91b930b897b5
attnlab report wo-gpu-enwik8
