"""The Studio: a local web application in which the lesson is computed live and real models are opened up."""
