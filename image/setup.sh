#!/bin/sh
# What Gradescope runs once, as root, when it builds the image from the uploaded zip.
set -eu
source=/autograder/source
. "$source/settings.sh" # what `autograder gradescope-zip` was asked for
sh "$source/image/install.sh" "$source" "$VARIANT"
sh "$source/image/lock.sh"
if [ -e "$source/course-secret" ]; then
    install -m 600 "$source/course-secret" /autograder/private/course-secret
    rm "$source/course-secret"
fi
